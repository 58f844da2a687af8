"""What a browser asked for: the fields of a URL or a form, each with its bounds.

Pure. Invariants: what is out of bounds is a BadRequestError that names the field; nothing is
guessed.
"""

from collections.abc import Iterable

MOST_CHARACTERS = 1000


class BadRequestError(Exception):
    """A field that cannot be meant so. The message is one line for the person who typed it."""


class Asked:
    """Fields by name; a field may be there several times."""

    def __init__(self, fields: Iterable[tuple[str, str]]) -> None:
        self._fields: dict[str, list[str]] = {}
        for name, value in fields:
            self._fields.setdefault(name, []).append(value)

    def has(self, name: str) -> bool:
        """Return whether a field is there, empty or not."""
        return name in self._fields

    def text(self, name: str, default: str = "", most: int = MOST_CHARACTERS) -> str:
        """Return a field's last value."""
        value = self._fields.get(name, [default])[-1]
        if len(value) > most:
            raise BadRequestError(f"{name}: more than {most:,} characters")
        return value

    def needed(self, name: str) -> str:
        """Return a field's value as it is, which has more in it than blanks."""
        value = self.text(name)
        if not value.strip():
            raise BadRequestError(f"{name}: required")
        return value

    def number(self, name: str, default: int, least: int = 0, most: int = (1 << 63) - 1) -> int:
        """Return a field as a number within bounds; the default where it is empty."""
        text = self.text(name).strip()
        if not text:
            return default
        if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 20):
            raise BadRequestError(f"{name}: {text[:40]} is not a number")
        if not least <= int(text) <= most:
            raise BadRequestError(f"{name}: {text} must be between {least:,} and {most:,}")
        return int(text)

    def choice(self, name: str, choices: Iterable[str], default: str) -> str:
        """Return a field that is one of these."""
        value = self.text(name) or default
        if value not in choices:
            raise BadRequestError(f"{name}: must be one of {', '.join(choices)}")
        return value

    def numbers(self, name: str, most: int) -> list[int]:
        """Return all values of a field that is there several times."""
        values = self._fields.get(name, [])
        if len(values) > most:
            raise BadRequestError(f"{name}: more than {most:,}")
        return [Asked([(name, value)]).number(name, 0, 0, (1 << 31) - 1) for value in values]
