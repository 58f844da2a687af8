"""Printable text: what others chose, as it may stand in a log line or on a terminal.

Pure.
"""

from collections.abc import Iterable


def printable(text: str) -> str:
    r"""Return text without control, format and line separator characters: `\x1b` for ESC."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode()
        for c in text
    )


def plural(count: int, noun: str, nouns: str = "") -> str:
    """Return `1 record`, `2 records`, `12,000 records`; `nouns` is a plural without -s."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that was likely meant; None if all are too different."""
    from difflib import get_close_matches  # only for a typing error

    return next(iter(get_close_matches(word, list(known), 1)), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean X?)`; empty if nothing known is near."""
    near = nearest(word, known)
    return f" (did you mean {near}?)" if near else ""
