"""The help of commands, as wide as the terminal and never wider than 100 columns.

Pure text but for the terminal's width.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ottla.cli.declaring import Declared, Parameter
from ottla.cli.parsing import EVERYWHERE
from ottla.cli.tree import Group

WIDEST, NARROWEST, PLAIN = 100, 40, 80
LEFT = 28
"""Columns for names of options before what they mean."""


def width() -> int:
    """Return how wide help is to be: the terminal's columns, 80 where there is none."""
    try:
        columns = int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(1).columns
    except (OSError, ValueError):
        columns = PLAIN
    return max(NARROWEST, min(columns or PLAIN, WIDEST))


def wrapped(text: str, room: int) -> list[str]:
    """Break text between words into lines of at most `room` columns; a long word stands alone."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > room:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def paragraphs(function: Callable[..., Any]) -> list[str]:
    """Return the paragraphs of a docstring; examples are paragraphs of their own, unbroken."""
    found: list[str] = [""]
    for line in (function.__doc__ or "").split("\n"):
        text = line.strip()
        if text.startswith("Example"):
            found += [text, ""]
        elif not text:
            found.append("")
        else:
            before, example, rest = text.partition(" Example: ")
            found[-1] += f" {before}" if found[-1] else before
            if example:
                found += [f"Example: {rest}", ""]
    return [p.strip() for p in found if p.strip()]


def of_command(path: Sequence[str], function: Callable[..., Any], known: list[Parameter]) -> str:
    """Return the help of a command."""
    room = width()
    arguments = [p for p in known if not p.is_option]
    words = ["ottla", *path, "[OPTIONS]", *(placeholder(p) for p in arguments)]
    lines = ["Usage: " + " ".join(words), ""]
    for text in paragraphs(function):
        unbroken = text.startswith("Example")
        lines += [f"  {line}" for line in ([text] if unbroken else wrapped(text, room - 2))]
        lines.append("")
    rows = [(placeholder(p), p.declared.help) for p in arguments if p.declared.help]
    if rows:
        lines += ["Arguments:", *_columns(rows, room), ""]
    options = [(names(p.names, p), described(p)) for p in known if p.is_option]
    options += [(names(o.names, None), o.help) for o in EVERYWHERE.values()]
    lines += ["Options:", *_columns(options, room)]
    return "\n".join(lines) + "\n"


def of_group(path: Sequence[str], group: Group) -> str:
    """Return the list of a group's commands, under their headings."""
    room = width()
    lines = [f"Usage: {' '.join(['ottla', *path])} COMMAND [OPTIONS]", ""]
    for text in filter(None, (group.summary, *group.details.split("\n\n"))):
        lines += [*(f"  {line}" for line in wrapped(text, room - 2)), ""]
    headings = list(dict.fromkeys(node.section for node in group.children.values()))
    left = max(len(name) for name in group.children)
    for heading in headings:
        rows = [(n, c.summary) for n, c in group.children.items() if c.section == heading]
        lines += [f"{heading or 'Commands'}:", *_columns(rows, room, left), ""]
    lines.append(f"`{' '.join(['ottla', *path])} COMMAND --help` tells more.")
    return "\n".join(lines) + "\n"


def placeholder(p: Parameter) -> str:
    """Return an argument as it stands in a usage line."""
    if p.metavar.startswith("["):
        return p.metavar
    text = p.metavar if not p.many or p.metavar.endswith("...") else f"{p.metavar}..."
    return text if p.required else f"[{text}]"


def names(all_names: Sequence[str], p: Parameter | None) -> str:
    """Return `-n, --name VALUE`."""
    short = [n for n in all_names if not n.startswith("--")]
    long = [n for n in all_names if n.startswith("--")]
    text = ", ".join([*short, *long])
    return text if p is None or p.is_flag else f"{text} {p.metavar}"


def described(p: Parameter) -> str:
    """Return what an option means, its choices, limits and default."""
    declared: Declared = p.declared
    notes = []
    if p.choices and p.declared.metavar:
        notes.append("|".join(p.choices))
    if declared.min is not None and declared.max is not None and "[" not in declared.help:
        notes.append(_limits(declared.min, declared.max))
    plain = p.default is None or p.default == "" or isinstance(p.default, list | bool)
    if not plain and "[" not in declared.help:
        default = f"{p.default:g}" if isinstance(p.default, float) else p.default
        notes.append(f"default: {default}")
    if p.required:
        notes.append("required")
    return f"{declared.help} [{', '.join(notes)}]".lstrip() if notes else declared.help


def _limits(low: float, high: float) -> str:
    return f"{low} or more" if high >= 1 << 31 else f"{low} to {high}"


def _columns(rows: Iterable[tuple[str, str]], room: int, left: int = LEFT) -> list[str]:
    lines = []
    for name, text in rows:
        first, *others = wrapped(text, room - left - 4) if text else [""]
        if len(name) > left:
            lines.append(f"  {name}")
            lines.append(f"  {'':{left}}  {first}")
        else:
            lines.append(f"  {name:{left}}  {first}".rstrip())
        lines += [f"  {'':{left}}  {line}" for line in others]
    return [line.rstrip() for line in lines if line.strip()]
