"""`ottla completion`, `ottla man`, `ottla schema`: what belongs to the command line itself."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from ottla.cli import Argument, UsageError
from ottla.cli.output import print_json, say
from ottla.model.printable import plural


class Shell(StrEnum):
    """The shells that are known."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def completion(shell: Annotated[Shell, Argument(metavar="bash|zsh|fish")]) -> None:
    from ottla.cli.completion import script

    sys.stdout.write(script(shell))


def man(
    folder: Annotated[
        Path, Argument(metavar="FOLDER", help="Where to, such as ~/.local/share/man/man1")
    ],
) -> None:
    from ottla.cli.manual import pages

    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for name, text in pages():
        (folder / name).write_text(text, encoding="utf-8")
        count += 1
    say(f"{plural(count, 'page')} written to {folder}; `man {folder}/ottla.1` shows the first")


def schema(
    words: Annotated[list[str], Argument(metavar="COMMAND...")],
) -> None:
    from ottla.cli.schemas import RESULTS, schema_of

    name = " ".join(words)
    if name not in RESULTS:
        raise UsageError(f"{name} prints no JSON; there are {', '.join(RESULTS)}")
    print_json(schema_of(name))
