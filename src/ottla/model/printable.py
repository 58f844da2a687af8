"""Printable text: what others chose, as it may stand in a log line or on a terminal.

Who may call: everybody. Pure.
"""


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
