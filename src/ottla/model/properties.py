r"""Properties: files of settings, read as Java reads them (`java.util.Properties.load`).

Invariants: a file that Kafka reads gives the same keys and values here, character by character:
lines end at `\n`, `\r` and `\r\n` only, blanks are space, tab and form feed only, values keep
trailing blanks, and bytes are ISO-8859-1. What Java refuses raises ConfigError.
"""

import re
from collections.abc import Mapping

from ottla.model.config_keys import trim
from ottla.model.errors import ConfigError

_BLANKS = " \t\f"
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_KEY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_LINE_ENDS = re.compile(r"\r\n|\r|\n")


def load_properties(data: bytes) -> dict[str, str]:
    """Return the settings of a file's bytes; ConfigError for a malformed escape."""
    return parse_properties(data.decode("iso-8859-1"))


def refuse_binary(data: bytes) -> None:
    """Raise ConfigError for what no person wrote as settings; Java reads an executable, too."""
    if b"\0" in data:
        raise ConfigError("it contains NUL bytes, so it is not a properties file")


def load_settings(data: bytes, where: object) -> dict[str, str]:
    """Return the settings of a file, without blanks around values, as clients read them.

    ConfigError names the file, `where`.
    """
    try:
        refuse_binary(data)
        return {key: trim(value) for key, value in load_properties(data).items()}
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def parse_properties(text: str) -> dict[str, str]:
    r"""Parse `key=value`, `key: value`, `key value`, `#` and `!` comments, `\` continuations.

    The last of several equal keys wins. ConfigError: `\u` without four hexadecimal digits.
    """
    result: dict[str, str] = {}
    for line in _logical_lines(text):
        found = _KEY.fullmatch(line)
        assert found is not None, "matches every line"
        result[_unescape(found[1])] = _unescape(found[2])
    return result


def as_properties(settings: Mapping[str, str]) -> str:
    """Return the text of a file, in ASCII, that reads back as these settings."""
    return "".join(_line(key, value) for key, value in settings.items())


def _line(key: str, value: str) -> str:
    return f"{_escaped(key, _IN_KEYS)}={_escaped(value, _FIRST_IN_VALUES)}\n"


_IN_KEYS = re.compile(r"[\\=: \t\f\n\r#!]|[^ -~]")
_FIRST_IN_VALUES = re.compile(r"\A |[\\\t\f\n\r]|[^ -~]")
_LETTERS = {char: letter for letter, char in _NAMED.items()}


def _escaped(text: str, special: re.Pattern[str]) -> str:
    return special.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    if char in _LETTERS:
        return "\\" + _LETTERS[char]
    if " " <= char <= "~":
        return "\\" + char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def _logical_lines(text: str) -> list[str]:
    lines = []
    pending = ""
    if text[-2:] in ("\\\n", "\\\r"):
        text = text[:-1]  # with nothing behind it, Java does not continue the line
    natural = _LINE_ENDS.split(text)
    for number, line in enumerate(natural, 1):
        part = line.lstrip(_BLANKS)
        if not pending and part[:1] in ("", "#", "!"):
            continue
        pending += part
        continues = _continues(part)
        if continues:
            pending = pending[:-1]
        if not continues or number == len(natural):
            lines.append(pending)
            pending = ""
    return [*lines, pending] if pending else lines


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    text = _ESCAPE.sub(_unescaped, text)
    # Java's characters are UTF-16: two escapes may make one character.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    if code == "u":
        raise ConfigError(
            r"malformed \u escape: four hexadecimal digits must follow; write a backslash as \\"
        )
    return chr(int(code[1:], 16)) if len(code) > 1 else _NAMED.get(code, code)
