"""What other tools call it: commands and options of Kafka's tools, rpk and kcat, and ours for them.

Pure data and look-ups; imported only then.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ottla.model.printable import did_you_mean

if TYPE_CHECKING:
    from ottla.cli.declaring import Parameter

COMMANDS = {
    "start": "up", "stop": "down", "ps": "status", "health": "status", "topic": "topics",
    "group": "groups", "config": "configs", "acl": "acls", "user": "users", "brokers": "broker",
    "producer": "produce", "console-producer": "produce", "consumer": "consume",
    "console-consumer": "consume", "consumer-groups": "groups", "transactions": "txn",
    "reassign-partitions": "reassign", "leader-election": "elect",
    "preferred-replica-election": "elect", "replica-verification": "verify-replicas",
    "delete-records": "topics delete-records", "get-offsets": "topics offsets",
    "server-start": "broker run", "server-stop": "broker stop",
    "generate": "plan", "status": "describe", "seek": "reset-offsets", "add-partitions": "alter",
}  # fmt: skip
"""Without `kafka-` and `.sh`; what follows is looked for among the commands that there are."""

OPTIONS = {
    "-p": ("--partitions", "--partition"), "-r": ("--replication-factor",), "-c": ("--config",),
    "-o": ("--output", "--offset"), "-n": ("--max-messages", "--brokers"), "-e": ("--until end",),
    "-t": ("--topic",), "-X": ("--command-config",), "-K": ("--key-separator",), "-d": ("--dir",),
    "-y": ("--yes",), "-f": ("--format", "--follow"), "-g": ("--group",), "-D": ("--format",),
    "--json": ("--output json",), "--yaml": ("--output json",), "--format": ("--output",),
    "--to-earliest": ("--to earliest",), "--to-latest": ("--to latest",),
    "--to-current": ("--to current",), "--to-start": ("--to earliest",),
    "--to-end": ("--to latest",), "--num": ("--max-messages",), "--offset": ("--from",),
    "--start": ("--from beginning",), "--end": ("--until end",),
    "--zookeeper": ("--bootstrap-server",), "--broker-list": ("--bootstrap-server",),
    "--brokers": ("--bootstrap-server",), "--command.config": ("--command-config",),
    "--consumer.config": ("--command-config",), "--producer.config": ("--command-config",),
    "--consumer-property": ("--command-config",), "--producer-property": ("--command-config",),
    "--property": ("--command-config",), "--config-file": ("--command-config",),
    "--topic-white-list": ("--topics-include",), "--whitelist": ("--regex", "--topics-include"),
    "--include": ("--regex", "--topics-include"), "--replicas": ("--replication-factor",),
    "--add-config": ("--set",), "--delete-config": ("--delete",), "--all-groups": ("--all",),
    "--all-topic-partitions": ("--all",), "--all-topics": ("--all",), "--entity-name": ("--topic",),
    "--entity-type": ("--topic", "--broker"), "--entity-default": ("--broker-defaults",),
    "--under-replicated-partitions": ("--under-replicated",), "--unavailable-partitions":
    ("--leaderless",), "--under-min-isr-partitions": ("--under-min-isr",),
    "--at-min-isr-partitions": ("--at-min-isr",), "--topics-with-overrides": ("--overrides",),
    "--force": ("--yes",), "--time": ("--at",), "--partition-id":
    ("--partition",), "--watch": ("--follow",),
}  # fmt: skip
"""By what other tools take, or what is common; the first of ours that a command has is meant."""

ARGUMENTS = {
    "--topic": "topic", "--topics": "topic", "-t": "topic", "--group": "group", "-g": "group",
    "--broker": "broker", "--broker-id": "broker", "--id": "broker", "--partition": "partition",
    "--transactional-id": "transaction", "--profile": "profile", "--allow-principal": "PRINCIPAL",
    "--principal": "PRINCIPAL", "--files": "FILE|FOLDER", "--name": "NAME",
    "--election-type": "preferred|unclean",
}  # fmt: skip
"""Options of others that are arguments here: by the kind of what is named, or the metavar."""


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
