"""What the REST API responds with where something cannot be: a code, a status and one line."""


class RegistryError(Exception):
    """A response that is no success; the HTTP status is the code's first three digits."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def status(self) -> int:
        return int(str(self.code)[:3])


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: object) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def invalid_schema(why: object) -> RegistryError:
    """Return the error of a schema that cannot be parsed; a library's lines become one."""
    return RegistryError(42201, f"Invalid schema: {' '.join(str(why).split())}")
