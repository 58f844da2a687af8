"""Config providers: values that stand elsewhere than in the file of settings (KIP-297, KIP-421).

Invariants: `${name:path:key}` of a provider that `config.providers` names is either replaced or
refused: it never becomes a value itself (with Kafka it does if the key is missing); references to
other names stay as they are, as with Kafka; what is read is never logged. Kafka: `AbstractConfig`,
`ConfigTransformer`, `FileConfigProvider`, `DirectoryConfigProvider`, `EnvVarConfigProvider`.
"""

# A broker does not load pathlib:
# ruff: noqa: PTH110, PTH113, PTH117, PTH118, PTH123
import os
import re
from collections.abc import Callable, Mapping

from ottla.model.config import PROVIDERS
from ottla.model.config_keys import trim
from ottla.model.errors import ConfigError
from ottla.model.properties import load_settings, parse_properties

_PACKAGE = "org.apache.kafka.common.config.provider."
_REFERENCE = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")

Lookup = Callable[[str, str], str]
"""Returns the value of (path, key); ConfigError where there is none."""


def provider_names(settings: Mapping[str, str]) -> frozenset[str]:
    """Return the names that `config.providers` has."""
    return frozenset(filter(None, map(trim, settings.get(PROVIDERS, "").split(","))))


def refers_to(text: str, names: frozenset[str]) -> bool:
    """Return whether a value refers to one of these providers."""
    return any(found[1] in names for found in _REFERENCE.finditer(text))


def resolved(settings: Mapping[str, str]) -> tuple[dict[str, str], frozenset[str]]:
    """Return the settings with all references replaced, and the values that came from elsewhere.

    ConfigError names the setting and the reference, never a value.
    """
    names = provider_names(settings)
    if not names:
        return dict(settings), frozenset()
    lookups = {name: _lookup(name, settings) for name in sorted(names)}
    secrets: set[str] = set()
    result = {}
    for key, text in settings.items():

        def replacement(found: re.Match[str], key: str = key) -> str:
            lookup = lookups.get(found[1])
            if lookup is None:
                return found[0]
            try:
                value = lookup(found[3] or "", found[4])
            except ConfigError as error:
                raise ConfigError(f"{key}: {found[0]} is not resolved: {error}") from error
            secrets.add(trim(value))
            return value

        own = key == PROVIDERS or key.startswith(f"{PROVIDERS}.")
        result[key] = text if own else _REFERENCE.sub(replacement, text)
    return result, frozenset(secrets - {""})


def client_settings(data: bytes, where: object) -> dict[str, str]:
    """Return a client's settings of a file's bytes, resolved; ConfigError names the file."""
    settings = load_settings(data, where)
    try:
        return {key: trim(value) for key, value in resolved(settings)[0].items()}
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def without(secrets: frozenset[str], text: str) -> str:
    """Return a text for people without values that came from elsewhere."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "[hidden]", text)
    return text


def _lookup(name: str, settings: Mapping[str, str]) -> Lookup:
    """Return what a provider does; ConfigError for one that is not built in."""
    key = f"{PROVIDERS}.{name}.class"
    named = trim(settings.get(key, ""))
    if not named:
        raise ConfigError(
            f"{key} is missing, but {PROVIDERS} names {name}; add it, or remove {name}"
        )
    make = _BUILT_IN.get(named)
    if make is None:
        raise ConfigError(
            f"{key}={named} names a Java class, which cannot run here; built in are "
            f"{', '.join(_BUILT_IN)}"
        )
    prefix = f"{PROVIDERS}.{name}.param."
    parameters = {k.removeprefix(prefix): k for k in settings if k.startswith(prefix)}
    return make({short: (key, trim(settings[key])) for short, key in parameters.items()})


Parameters = Mapping[str, tuple[str, str]]
"""By name: the whole key, and the value."""


def _allowed_paths(parameters: Parameters) -> Callable[[str], str]:
    """Return what makes a path of a reference usable; ConfigError if it is not allowed."""
    key, text = parameters.get("allowed.paths", ("", ""))
    allowed = [part for part in map(trim, text.split(",")) if part]
    for path in allowed:
        if not os.path.isabs(path) or not os.path.exists(path):
            raise ConfigError(f"{key}: {path} must be an absolute path that exists")

    def checked(text: str) -> str:
        if not text:
            raise ConfigError("the path is missing; write ${name:path:key}")
        if not allowed:
            return text
        path = os.path.normpath(text)
        for each in map(os.path.normpath, allowed):
            if os.path.isabs(path) and os.path.commonpath((each, path)) == each:
                return path
        raise ConfigError(f"{key} does not allow {text}")

    return checked


def _file(parameters: Parameters) -> Lookup:
    allowed = _allowed_paths(parameters)

    def lookup(path: str, key: str) -> str:
        values = parse_properties(_read(allowed(path)))
        if key not in values:
            raise ConfigError(f"{path} has no key {key}")
        return values[key]

    return lookup


def _directory(parameters: Parameters) -> Lookup:
    allowed = _allowed_paths(parameters)

    def lookup(path: str, key: str) -> str:
        file = os.path.join(allowed(path), key)
        if "/" in key or not os.path.isfile(file):
            raise ConfigError(f"{path} has no file {key}")
        return _read(file)

    return lookup


def _environment(parameters: Parameters) -> Lookup:
    key, text = parameters.get("allowlist.pattern", ("", ""))
    try:
        pattern = re.compile(text) if key else None
    except re.error as error:
        raise ConfigError(f"{key}={text} is not a regular expression: {error}") from None

    def lookup(path: str, name: str) -> str:
        if path:
            raise ConfigError("environment variables have no path; write ${name:VARIABLE}")
        if pattern is not None and not pattern.fullmatch(name):
            raise ConfigError(f"{key} does not allow {name}")
        value = os.environ.get(name)
        if value is None:
            raise ConfigError(f"there is no environment variable {name}")
        return value

    return lookup


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read().decode()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except ValueError:
        raise ConfigError(f"{path} is not text in UTF-8") from None


_BUILT_IN: Mapping[str, Callable[[Parameters], Lookup]] = {
    f"{_PACKAGE}FileConfigProvider": _file,
    f"{_PACKAGE}DirectoryConfigProvider": _directory,
    f"{_PACKAGE}EnvVarConfigProvider": _environment,
}
