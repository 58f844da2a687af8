"""Writes docs/COMMANDS.md: the help of every command, 80 columns wide, from what `--help` and `ottla man` print.

    python docs/list_commands.py

A unit test keeps the committed page equal to what the code says.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from ottla.admin import connection
from ottla.cli import help_text
from ottla.cli.declaring import parameters
from ottla.cli.table import add, all_commands
from ottla.cli.tree import Command, Group
from ottla.explain.entries import of_other_rooms

PAGE = Path(__file__).with_name("COMMANDS.md")
HEAD = """\
# Commands

Written by `python docs/list_commands.py` from the same source as `--help` and `ottla man FOLDER`; do not edit.

`pipeline` and `broker run` are programs of their own: `ottla pipeline --help`
([PIPELINES.md](PIPELINES.md)), `ottla broker run --help`. What each command prints with `--output json`, and all exit codes, are in
[OUTPUT.md](OUTPUT.md).

![what ottla --help prints](terminal-help.svg)

![the help of a command](terminal-help-command.svg)

Every command that asks a cluster finds it by the first of these that is there: `--bootstrap-server`, `--dir`, `--profile`,
`bootstrap.servers` of `--command-config`, `OTTLA_BOOTSTRAP_SERVERS`, `OTTLA_PROFILE`, `OTTLA_DIR`, the profile in use, `./ottla-data`.
"""


def help_of(path: list[str], node: Command | Group) -> str:
    if isinstance(node, Group):
        return help_text.of_group(path, node)
    known = node.parameters()
    if any(p.name == "bootstrap_server" for p in known):
        known = known + parameters(connection.options)
    return help_text.of_command(path, node.function(), known)


def everything(path: list[str], group: Group) -> Iterator[tuple[list[str], Command | Group]]:
    """Yield each group and command with its path; those that are run elsewhere are left out."""
    yield path, group
    for name, child in group.children.items():
        if isinstance(child, Group):
            yield from everything([*path, name], child)
        elif child.target:
            yield [*path, name], child


def page() -> str:
    """Return the whole page; COLUMNS, which says how wide help is, must be 80."""
    add(of_other_rooms())
    parts = [HEAD]
    for path, node in everything([], all_commands()):
        level = "##" if len(path) < 2 else "###"
        parts.append(f"{level} {' '.join(['ottla', *path])}\n\n```text\n{help_of(path, node)}```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    os.environ["COLUMNS"] = "80"
    PAGE.write_text(page(), encoding="utf-8")
