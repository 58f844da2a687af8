"""YAML of plain values, in blocks, as people write it.

Pure functions. Invariants: whatever may be read as something else than a text stands in quotes; no
control character is written.
"""

import re
from collections.abc import Iterator

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*", re.ASCII)
_NOT_TEXT = frozenset(["true", "false", "null", "yes", "no", "on", "off", "y", "n"])
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def to_yaml(value: object) -> str:
    """Return a document of dicts, lists, texts, numbers, bools and None."""
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: object) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _under(f"{_scalar(key)}:", inner)
    elif isinstance(value, list | tuple) and value:
        for inner in value:
            lines = _lines(inner)
            yield f"- {next(lines)}"
            for line in lines:
                yield f"  {line}"
    else:
        yield _scalar(value)


def _under(head: str, value: object) -> Iterator[str]:
    if not value or not isinstance(value, dict | list | tuple):
        yield f"{head} {_scalar(value)}"
        return
    yield head
    indent = "  " if isinstance(value, dict) else ""
    for line in _lines(value):
        yield indent + line


def _scalar(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        text = repr(value)
        # Without a point YAML 1.1 takes it for a text.
        return text.replace("e", ".0e") if "e" in text and "." not in text else text
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, list | tuple):
        return "[]"
    text = str(value)
    if _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT:
        return text
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
