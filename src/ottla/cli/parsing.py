"""From words on a command line to the arguments of a function.

Pure but for `Path`. Invariants: every wrong word is a `UsageError` that names it, the reason and,
where there is one, what was probably meant.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.cli.declaring import Option, Parameter, UsageError

_INTEGER = re.compile(r"[+-]?\d{1,30}", re.ASCII)

EVERYWHERE = {
    "help": Option("--help", "-h", help="Show this and exit"),
    "quiet": Option("--quiet", "-q", help="Say nothing but data and errors"),
    "verbose": Option(
        "--verbose", "-v", help="Also say what is asked of whom, and how long it took"
    ),
}
"""Options of every command."""


class Parsed(NamedTuple):
    """What a command is called with, and which options of every command were typed."""

    arguments: dict[str, Any]
    everywhere: set[str]


def parse(parameters: Sequence[Parameter], words: Sequence[str]) -> Parsed:
    """Return the arguments that words stand for; UsageError if they stand for none."""
    options = {name: p for p in parameters if p.is_option for name in p.names}
    common = {name: key for key, option in EVERYWHERE.items() for name in option.names}
    found: dict[str, Any] = {}
    everywhere: set[str] = set()
    places: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            places += left
            break
        if not word.startswith("-") or word == "-":
            places.append(word)
            continue
        name, equals, value = word.partition("=")
        if not word.startswith("--") and name not in options and name not in common:
            # -p3, and flags together, as -qv
            name, equals, value = word[:2], "", word[2:]
            flag = name in common or (name in options and options[name].is_flag)
            if value and flag:
                left.insert(0, "-" + value)
                value = ""
            equals = "=" if value else ""
        if name in common and not equals:
            everywhere.add(common[name])
        elif name in options:
            _option(options[name], name, value if equals else None, left, found)
        else:
            from ottla.cli.spellings import instead_of_option

            instead = instead_of_option(name, [*options, *common], parameters)
            raise UsageError(f"there is no option {name}{instead}")
    if "help" not in everywhere:
        _arguments([p for p in parameters if not p.is_option], places, found)
        for p in parameters:
            if p.required and p.name not in found:
                raise UsageError(f"{p.shown} is missing")
    return Parsed({p.name: found.get(p.name, p.default) for p in parameters}, everywhere)


def _option(
    p: Parameter, name: str, value: str | None, left: list[str], found: dict[str, Any]
) -> None:
    if p.is_flag:
        if value is not None:
            raise UsageError(f"{name} takes no value")
        found[p.name] = not name.startswith("--no-") or p.names == (name,)
        return
    if value is None:
        if not left:
            raise UsageError(f"{name} needs a value: {name} {p.metavar}")
        value = left.pop(0)
    converted = convert(p, value, name)
    if p.many:
        found.setdefault(p.name, []).append(converted)
    else:
        found[p.name] = converted


def _arguments(declared: Sequence[Parameter], places: list[str], found: dict[str, Any]) -> None:
    left = list(places)
    for p in declared:
        if p.many:
            if left:
                found[p.name] = [convert(p, word, "") for word in left]
            left = []
        elif left:
            found[p.name] = convert(p, left.pop(0), "")
    if left:
        raise UsageError(f"{left[0]} is one argument too many")


def convert(p: Parameter, text: str, name: str) -> Any:
    """Return what a word stands for; `name` is the option's, empty for an argument."""
    shown = f"{name} {text}" if name else text
    if p.choices:
        if text not in p.choices:
            raise UsageError(f"{shown}: choose one of {', '.join(p.choices)}")
        return p.type(text)
    if p.type is int:
        if not _INTEGER.fullmatch(text):
            raise UsageError(f"{shown}: not an integer")
        return _within(p, int(text), shown)
    if p.type is float:
        try:
            return _within(p, float(text), shown)
        except ValueError:
            raise UsageError(f"{shown}: not a number") from None
    return p.type(text)


def _within(p: Parameter, number: Any, shown: str) -> Any:
    low, high = p.declared.min, p.declared.max
    if not (low is None or number >= low) or not (high is None or number <= high):
        limits = f"{low} or more" if high is None else f"{low} to {high}"
        raise UsageError(f"{shown}: choose {limits}")
    return number
