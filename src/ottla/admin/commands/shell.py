"""`ottla completion`, `ottla man`, `ottla schema`: what belongs to the command line itself.

Invariant: `complete` never says anything but candidates.
"""

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ottla.admin.arguments import Argument, UsageError
from ottla.cli.output import print_json, say
from ottla.model.printable import plural

if TYPE_CHECKING:
    from ottla.admin.arguments.tree import Group
    from ottla.net.client import Client
    from ottla.wire.messages.metadata import MetadataResponse

NAMES_WITHIN_S = 1.5
"""A person waits at the terminal: a cluster that is slower offers no names."""


class Shell(StrEnum):
    """The shells that are known."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def completion(shell: Annotated[Shell, Argument(metavar="bash|zsh|fish")]) -> None:
    """Print what makes a shell complete commands, options, topics and groups.

    Example: source <(ottla completion bash)
    """
    from ottla.admin.arguments.completion import SCRIPTS

    sys.stdout.write(SCRIPTS[shell])


def complete(root: "Group", words: Sequence[str]) -> None:
    """Print what may stand for the last of some words, a line each: word, tab, meaning."""
    from ottla.admin import connection
    from ottla.admin.arguments.completion import candidates

    for word, meaning in candidates(root, words, _names, connection.options):
        if not word.isprintable():
            continue  # it cannot be typed, and shells read lines
        first = meaning.partition("\n")[0]
        sys.stdout.write(f"{word}\t{first}\n" if first else f"{word}\n")


def _names(kind: str, chosen: Mapping[str, str]) -> list[str]:
    """Return names of a cluster; none where it does not respond at once."""
    from ottla.model.errors import OttlaError

    try:
        if kind == "profile":
            from ottla.admin import profiles

            return sorted(profiles.load().by_name)
        return _asked(kind, chosen)
    except (OttlaError, OSError, TimeoutError):
        return []


def _asked(kind: str, chosen: Mapping[str, str]) -> list[str]:
    import asyncio

    from ottla.admin import connection
    from ottla.admin.session import connected

    config, directory = chosen.get("command_config"), chosen.get("directory")
    connection.options(chosen.get("profile"), Path(config) if config else None)
    found = connection.where(chosen.get("bootstrap_server"), Path(directory) if directory else None)

    async def question(client: "Client") -> list[str]:
        async with asyncio.timeout(NAMES_WITHIN_S):
            if kind in ("topic", "partition", "number"):
                return _of_topics(kind, (await client.metadata(None)).topics, chosen.get("topic"))
            if kind == "broker":
                return [str(b) for b in await client.broker_ids()]
            if kind == "group":
                from ottla.admin.operations.groups import list_groups

                return [g.group for g in await list_groups(client, [])]
            from ottla.admin.operations.transactions import list_transactions

            return [t.transactional_id for t in await list_transactions(client, [], [])]

    return connected(
        found.bootstrap(), question, timeout_s=NAMES_WITHIN_S, security=found.settings.security
    )


def _of_topics(
    kind: str, topics: "Sequence[MetadataResponse.MetadataResponseTopic]", topic: str | None
) -> list[str]:
    """Return topics, their partitions, or the numbers of the partitions of one topic."""
    if kind == "topic":
        return sorted(t.name or "" for t in topics)
    found = sorted((t.name or "", p.partition_index) for t in topics for p in t.partitions)
    if kind == "partition":
        return [f"{name}-{number}" for name, number in found]
    return [str(number) for name, number in found if name == topic]


def man(
    folder: Annotated[
        Path, Argument(metavar="FOLDER", help="Where to, as ~/.local/share/man/man1")
    ],
) -> None:
    """Write man pages, built from the help, into a folder.

    Example: ottla man ~/.local/share/man/man1
    """
    from ottla.admin import connection
    from ottla.admin.arguments.declaring import parameters
    from ottla.admin.arguments.manual import pages
    from ottla.admin.command_table import all_commands

    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for name, text in pages(all_commands(), parameters(connection.options)):
        (folder / name).write_text(text, encoding="utf-8")
        count += 1
    say(f"{plural(count, 'page')} written to {folder}; `man {folder}/ottla.1` shows the first")


def schema(
    words: Annotated[list[str], Argument(metavar="COMMAND...")],
) -> None:
    """Print the JSON schema of what a command prints with --output json.

    Example: ottla schema topics list
    """
    from ottla.cli.schemas import RESULTS, schema_of

    name = " ".join(words)
    if name not in RESULTS:
        raise UsageError(f"{name} prints no JSON; there are {', '.join(RESULTS)}")
    print_json(schema_of(name))
