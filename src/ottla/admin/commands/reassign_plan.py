"""`ottla reassign plan`: which brokers partitions are to live on.

Invariants: stdout carries a plan that `reassign execute --file` and Kafka's own tool read (with
--kafka-output what Kafka's tool prints); nothing is changed.
"""

import sys
from typing import TYPE_CHECKING, Annotated

from ottla.admin.options import Bootstrap, Dir, ask, read_input, usage
from ottla.cli import Option, UsageError
from ottla.cli.output import Format, ids, megabytes, print_table, say
from ottla.model.printable import plural

if TYPE_CHECKING:
    from ottla.placement.plans import Assignment

PlanOutput = Annotated[
    Format, Option("--output", help="Format of the plan; Kafka's tool and --file read json")
]
KafkaOutput = Annotated[bool, Option("--kafka-output", help="Print what Kafka's tool prints")]


def print_plan(output: Format, plan: "Assignment") -> None:
    """Print a plan to stdout at once."""
    from ottla.placement import plans

    if output is Format.json:
        sys.stdout.write(plans.format_plan(plan) + "\n")
    else:
        rows = [(tp.topic, tp.partition, ids(replicas)) for tp, replicas in sorted(plan.items())]
        print_table(("topic", "partition", "replicas"), rows)
    sys.stdout.flush()


def _wanted(topics: list[str] | None, file: str | None, every: bool) -> list[str] | None:
    """Return the topics that were named in one of the ways, None for all of them."""
    from ottla.placement import plans

    if [bool(topics), file is not None, every].count(True) != 1:
        raise UsageError(
            "name what to move: --topics, --topics-file, --all or --drain, one of them"
        )
    if every:
        return None
    if file is not None:
        data, where = read_input(file, plans.MAX_PLAN_BYTES)
        return plans.parse_topics(data, where)
    found = (n.strip() for some in topics or () for n in some.split(","))
    names = list(dict.fromkeys(name for name in found if name))
    if not names:
        raise UsageError("--topics names no topic")
    return names


def plan(
    topics: Annotated[
        list[str] | None, Option("--topics", metavar="T[,T…]", help="Topics to balance")
    ] = None,
    topics_file: Annotated[
        str | None,
        Option(
            "--topics-file",
            metavar="FILE",
            help='Topics, as {"version":1,"topics":[{"topic":"t"}]}; - is standard input',
            hidden=("--topics-to-move-json-file",),
        ),
    ] = None,
    every: Annotated[bool, Option("--all", help="Balance all topics")] = False,
    drain: Annotated[
        int | None,
        Option(metavar="ID", help="Only move replicas off this broker", min=0, complete="broker"),
    ] = None,
    brokers: Annotated[
        str | None,
        Option(
            "--brokers",
            metavar="ID[,ID…]",
            help="Target brokers [default: all that are alive]",
            hidden=("--broker-list",),
        ),
    ] = None,
    replication_factor: Annotated[
        int | None, Option(help="New replication factor [default: unchanged]", min=1)
    ] = None,
    ignore_racks: Annotated[
        bool, Option("--ignore-racks", help="Ignore racks", hidden=("--disable-rack-aware",))
    ] = False,
    by_bytes: Annotated[
        bool, Option("--by-bytes", help="Even out the brokers' bytes, not their replicas")
    ] = False,
    kafka_output: KafkaOutput = False,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: PlanOutput = Format.json,
) -> None:
    from ottla.admin.operations import drain as draining
    from ottla.admin.operations import kafka_text, proposing
    from ottla.placement import plans

    least, uneven = None, None
    if by_bytes and (drain is not None or replication_factor is not None):
        raise UsageError("--by-bytes moves replicas: name topics or brokers with it, nothing else")
    if drain is not None:
        if topics or topics_file is not None or every or replication_factor is not None or brokers:
            raise UsageError("--drain moves only what its broker has: name nothing else with it")
        current, assignment = ask(
            directory, bootstrap_server, lambda client: draining.plan(client, drain)
        )
        copied, size = len(assignment), 0
    else:
        names = _wanted(topics, topics_file, every)
        chosen = usage(plans.parse_brokers, [brokers] if brokers is not None else [], "--brokers")
        current, proposed = ask(
            directory,
            bootstrap_server,
            lambda client: proposing.propose(
                client,
                names,
                chosen[0] if chosen else (),
                replication_factor,
                rack_aware=not ignore_racks,
                by_bytes=by_bytes,
            ),
        )
        assignment, copied, least = proposed.assignment, proposed.copies, proposed.least
        size, uneven = proposed.copied_bytes, proposed.uneven
    if kafka_output:
        sys.stdout.write(kafka_text.generated(current, assignment))
    else:
        print_plan(output, assignment)
    changed = sum(replicas != current[tp] for tp, replicas in assignment.items())
    if not changed:
        say("nothing to move")
        return
    of = plural(len(assignment), "partition")
    text = f"{plural(copied, 'replica')} to copy{f' ({megabytes(size)})' if size >= 1e6 else ''}"
    text += f", {changed} of {of} changed"
    if uneven is not None:
        before, after = uneven
        say(f"{text}; brokers differ from their mean by {before:.0%} at most, then {after:.0%}")
    else:
        say(text if least is None else f"{text}; no spread as even copies fewer than {least}")
