"""What other tools call it: commands and options of Kafka's tools, rpk and kcat, and ours for them.

Imported only where something is not there.
"""

import tomllib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.model.printable import did_you_mean

if TYPE_CHECKING:
    from ottla.cli.declaring import Parameter

_FILE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
COMMANDS: dict[str, str] = _FILE["commands"]
OPTIONS: dict[str, list[str]] = _FILE["options"]
ARGUMENTS: dict[str, str] = _FILE["arguments"]


GONE = {
    "pipeline audit": "docs/PIPELINES.md has it as two SQL views",
    "pipeline drill": "`ottla verify-replicas --files` and `ottla history timeline` tell it",
}
"""Commands that are no more, and what tells the same."""


def instead_of_option(name: str, known: Sequence[str], parameters: Sequence["Parameter"]) -> str:
    """Return ` (did you mean X?)` for an option that is not there; empty if nothing is near."""
    kind = ARGUMENTS.get(name)
    for p in parameters:
        shown = p.metavar.removesuffix("...")
        if kind is not None and not p.is_option and (kind in p.kinds or shown.strip("[]") == kind):
            return f" (it is an argument here: {shown})"
    meant = [new for new in OPTIONS.get(name, ()) if new.split()[0] in known]
    meant = meant or [n for n in known if len(name) > 2 and n.startswith(name)][:2]
    if not meant:
        return did_you_mean(name, [n for n in known if n.startswith("--")])
    return f" (did you mean {' or '.join(meant)}?)"


def instead_of_command(path: Sequence[str], name: str, known: Collection[str]) -> str:
    """Return what to type instead of a command that is not there."""
    gone = GONE.get(" ".join([*path, name]))
    if gone is not None:
        return f"; {gone}"
    plain = name.removeprefix("kafka-").removesuffix(".sh").lower()
    meant = COMMANDS.get(plain, plain)
    if meant.split()[0] in known:
        return f" (did you mean {meant}?)"
    return did_you_mean(plain, known) or f"; `{' '.join(['ottla', *path])} --help` lists them"


def instead_of_group_option(path: Sequence[str], word: str, known: Collection[str]) -> str:
    """Return what to type instead of an option where a command belongs."""
    name = word.partition("=")[0].lstrip("-")
    name = COMMANDS.get(name, name)
    if name in known:
        return f"; did you mean `{' '.join(['ottla', *path, name])}`?"
    return "; --help lists them"
