"""How the bytes of a record are shown: JSON, text or hexadecimal, cut where they are too many.

Pure. Invariants: any bytes have a form; what is shown is bounded whatever the bytes are; JSON is
set out only where that stays small.
"""

import re
from typing import NamedTuple

import msgspec

FORMS = ("auto", "json", "text", "hex")
SET_OUT_BYTES = 65_536
DEEPEST = 20
"""JSON that is nested deeper is shown as it is: indenting it would take too much room."""
HEX_ROW = 16
_BRACKET = re.compile(rb"[\[\]{}]")


class Formed(NamedTuple):
    """Bytes as text. `form`: json, text, hex, avro or null; `cut`: bytes that are not shown."""

    text: str
    form: str
    size: int
    cut: int
    note: str = ""
    """What is to be said of it."""


def formed(data: bytes | None, form: str, most: int) -> Formed:
    """Return at most about `most` characters for some bytes; `auto` chooses the form by them."""
    if data is None:
        return Formed("null", "null", 0, 0)
    if form in ("auto", "json"):
        found = _json(data) if len(data) <= SET_OUT_BYTES else None
        if found is not None and len(found) <= most:
            return Formed(found, "json", len(data), 0)
        if form == "json":
            form = "text"
    part = data[:most]
    if form == "auto":
        form = "text" if _is_text(part, whole=len(part) == len(data)) else "hex"
    if form == "text":
        return Formed(
            part.decode(errors="backslashreplace"), "text", len(data), len(data) - len(part)
        )
    part = data[: most // 5]
    return Formed(_hex(part), "hex", len(data), len(data) - len(part))


def _is_text(data: bytes, *, whole: bool) -> bool:
    """Return whether bytes are UTF-8, which may have been cut within a character."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return not whole and error.start >= len(data) - 3
    return True


def _json(data: bytes) -> str | None:
    """Return an object or list set out in lines, None for anything else."""
    if data.lstrip()[:1] not in (b"{", b"["):
        return None
    depth = deepest = 0
    for bracket in _BRACKET.finditer(data):
        depth += 1 if bracket[0] in b"[{" else -1
        deepest = max(deepest, depth)
    if deepest > DEEPEST:
        return None
    try:
        msgspec.json.decode(data)
        return msgspec.json.format(data, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        return None


def _hex(data: bytes) -> str:
    rows = []
    for at in range(0, len(data), HEX_ROW):
        row = data[at : at + HEX_ROW]
        text = "".join(chr(b) if 0x20 <= b < 0x7F else "." for b in row)
        rows.append(f"{at:08x}  {row.hex(' '):<{HEX_ROW * 3 - 1}}  {text}")
    return "\n".join(rows)
