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
