"""Writes docs/COMMANDS.md: the help of every command, 80 columns wide, from what `--help` prints.

    python docs/list_commands.py

A unit test keeps the committed page equal to what the code says.
"""

import os
from pathlib import Path

from ottla.cli.grammar import help_of, walk
from ottla.cli.table import load

PAGE = Path(__file__).with_name("COMMANDS.md")
HEAD = """\
# Commands

Written by `python docs/list_commands.py`: what `--help` prints. Do not edit; the words are in `src/ottla/cli/commands.txt` and at the functions that it names.

The Spark jobs (`ottla pipeline`) have a page of their own, [PIPELINES.md](PIPELINES.md). What each command prints with `--output json`, and all exit codes, are in
[OUTPUT.md](OUTPUT.md).

![what ottla --help prints](terminal-help.svg)

![the help of a command](terminal-help-command.svg)

Every command that asks a cluster finds it by the first of these that is there: `--bootstrap-server`, `--dir`, `--profile`,
`bootstrap.servers` of `--command-config`, `OTTLA_BOOTSTRAP_SERVERS`, `OTTLA_PROFILE`, `OTTLA_DIR`, the profile in use, `./ottla-data`.
"""


def page() -> str:
    """Return the whole page; COLUMNS, which says how wide help is, must be 80."""
    root, _ = load()
    parts = [HEAD]
    for path, node in ((), root), *walk(root):
        if not node.instead:
            level = "##" if len(path) < 2 else "###"
            parts.append(f"{level} {' '.join(['ottla', *path])}\n\n```text\n{help_of(path)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    os.environ["COLUMNS"] = "80"
    PAGE.write_text(page(), encoding="utf-8")
