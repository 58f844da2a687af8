"""Principal mapping: from a certificate's distinguished name to the name of a user.

A decider. The rules are tried in their order, the first that matches the whole name decides:
`RULE:pattern/replacement/[LU]` or `DEFAULT` (the name as it is). Invariants: a rule that Kafka
refuses is refused; a pattern that only Java's regular expressions have is refused, never matched
otherwise. Kafka: `SslPrincipalMapper`, by ssl.principal.mapping.rules (KIP-371).
"""

import re
from collections.abc import Callable

from ottla.model.errors import ConfigError, OttlaError

KEY = "ssl.principal.mapping.rules"

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_PARSER = re.compile(_RULE, re.ASCII)
_BACK_REFERENCE = re.compile(r"\$(\d+)", re.ASCII)
_DIGITS = re.compile(r"\d+", re.ASCII)
_POSIX = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": re.escape("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
    "Space": r" \t\n\x0b\f\r",
    "XDigit": "0-9a-fA-F",
}


class NoMatchingRuleError(OttlaError):
    """No rule matches a name: its owner is not let in."""


class _Rule:
    """One `RULE:`; `text` is how Kafka shows it."""

    def __init__(self, pattern: str, replacement: str, case: str) -> None:
        self.text = f"RULE:{pattern}/{replacement}" + (f"/{case}" if case else "")
        try:
            self._pattern = re.compile(_python_pattern(pattern), re.ASCII)
        except re.error as error:
            raise ConfigError(f"{KEY}: {self.text}: not a pattern of ours: {error}") from error
        self._replacement = _with_literals(replacement, self._pattern.groups)
        self._case: Callable[[str], str] = {"L": str.lower, "U": str.upper}.get(case, str)

    def __str__(self) -> str:
        return self.text

    def apply(self, name: str) -> str | None:
        if self._pattern.fullmatch(name) is None:
            return None
        return self._case(self._pattern.sub(self._replace, name))

    def _replace(self, match: "re.Match[str]") -> str:
        """Return the replacement as Java's `Matcher.appendReplacement` makes it."""
        out: list[str] = []
        text = self._replacement
        position = 0
        while position < len(text):
            char = text[position]
            if char == "\\":
                if position + 1 == len(text):
                    raise NoMatchingRuleError(
                        f"{KEY}: the replacement {text!r} ends in a backslash"
                    )
                out.append(text[position + 1])
                position += 2
            elif char == "$":
                number, position = _reference(text, position + 1, self._pattern.groups)
                out.append(match.group(number) or "")
            else:
                out.append(char)
                position += 1
        return "".join(out)


def _reference(text: str, position: int, groups: int) -> tuple[int, int]:
    """Return the group that the digits after a `$` mean, and where they end."""
    found = _DIGITS.match(text, position)
    if found is None:
        raise NoMatchingRuleError(f"{KEY}: the replacement {text!r} has a $ without a number")
    number, end = int(found[0][0]), position + 1
    if number > groups:
        raise NoMatchingRuleError(f"{KEY}: the replacement {text!r} names group {number}: no such")
    for digit in found[0][1:]:  # as many digits as there is a group for
        if int(f"{number}{digit}") > groups:
            break
        number = int(f"{number}{digit}")
        end += 1
    return number, end


def _with_literals(replacement: str, groups: int) -> str:
    """Escape each `$n` for which there is no group: it stands for itself.

    As Kafka does it: by places in the text as it was before the first of them was escaped.
    """
    value = replacement
    for found in _BACK_REFERENCE.finditer(replacement) if groups else ():
        number = int(found[1])
        while number > groups and number >= 10:
            number //= 10
        if not found[1].startswith("0") and number > groups:
            place = found.start(1) - 1
            value = f"{value[:place]}\\{value[place:]}"
    return value


def _python_pattern(pattern: str) -> str:
    """Return a Java pattern as Python writes it; both mean the same."""

    def translated(match: "re.Match[str]") -> str:
        whole, name = match[0], match[1]
        if name is None:
            if whole[1] in "QEGRXhvHVzkN":
                raise ConfigError(f"{KEY}: {whole} in {pattern!r} is not supported; write it out")
            return whole
        if name not in _POSIX:
            raise ConfigError(f"{KEY}: {whole} in {pattern!r} is not supported; write it out")
        inside = pattern[: match.start()].count("[") > pattern[: match.start()].count("]")
        return _POSIX[name] if inside else f"[{_POSIX[name]}]"

    if "&&" in pattern:
        raise ConfigError(f"{KEY}: && in {pattern!r} is not supported; write it out")
    text = re.sub(r"\\p\{(\w+)\}|\\(?s:.)", translated, pattern)
    return re.sub(r"\(\?<(?=[a-zA-Z])", "(?P<", text)


class PrincipalMapping:
    """The rules of one listener."""

    def __init__(self, text: str = "DEFAULT") -> None:
        """Parse rules; ConfigError for what is none."""
        self.rules: list[_Rule | None] = []
        """None stands for DEFAULT"""
        for part in _SPLITTER.finditer(text.strip()):
            self._add(part[1])

    def _add(self, rule: str) -> None:
        found = _PARSER.match(rule)
        end = 0 if found is None else found.end()
        if found is None or end != len(rule):
            raise ConfigError(f"{KEY}: Invalid rule: `{rule}`, unmatched substring: `{rule[end:]}`")
        if found[1] is not None:
            self.rules.append(None)
        elif found[2] is not None:
            self.rules.append(_Rule(found[2], found[3], found[4]))

    def __str__(self) -> str:
        shown = ", ".join("DEFAULT" if rule is None else str(rule) for rule in self.rules)
        return f"SslPrincipalMapper(rules = [{shown}])"

    def name(self, distinguished_name: str) -> str:
        """Return the user's name; NoMatchingRuleError if no rule matches."""
        for rule in self.rules:
            found = distinguished_name if rule is None else rule.apply(distinguished_name)
            if found is not None:
                return found
        raise NoMatchingRuleError(f"No rules apply to {distinguished_name}, {KEY}={self}")
