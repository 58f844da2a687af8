"""`ottla reassign plan`, and plans as the commands of reassignments take and print them.

Invariants: stdout carries a plan that `reassign execute --file` and Kafka's own tool read (with
--kafka-output what Kafka's tool prints); nothing is changed.
"""

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from ottla.admin.connection import Connection
from ottla.admin.options import read_input, usage
from ottla.cli import Option, UsageError
from ottla.cli.output import Format, ids, megabytes, print_table, say
from ottla.model.printable import plural

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.model.ids import TopicPartition
    from ottla.placement.plans import Assignment, Places

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
    target: Connection,
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
    output: PlanOutput = Format.json,
) -> None:
    from ottla.admin.operations import drain as draining
    from ottla.admin.operations import kafka_text
    from ottla.client import proposals
    from ottla.placement import plans

    least, uneven = None, None
    if by_bytes and (drain is not None or replication_factor is not None):
        raise UsageError("--by-bytes moves replicas: name topics or brokers with it, nothing else")
    if drain is not None:
        if topics or topics_file is not None or every or replication_factor is not None or brokers:
            raise UsageError("--drain moves only what its broker has: name nothing else with it")
        current, assignment = target.ask(lambda client: draining.plan(client, drain))
        copied, size = len(assignment), 0
    else:
        names = _wanted(topics, topics_file, every)
        chosen = usage(plans.parse_brokers, [brokers] if brokers is not None else [], "--brokers")
        current, proposed = target.ask(
            lambda client: proposals.propose(
                client,
                names,
                chosen[0] if chosen else (),
                replication_factor,
                rack_aware=not ignore_racks,
                by_bytes=by_bytes,
            )
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


File = Annotated[
    str | None,
    Option(
        "--file",
        metavar="FILE",
        help="Plan in Kafka's JSON format; - is standard input",
        hidden=("--reassignment-json-file",),
    ),
]
Moves = Annotated[
    list[str] | None,
    Option(
        "--partition",
        metavar="TOPIC-PARTITION=BROKERS",
        help="Move a partition, such as flights-0=1,2,3; repeatable",
    ),
]
Wait = Annotated[
    float | None, Option(metavar="SECONDS", help="Wait this long for the moves to finish", min=0)
]


def plan_of(file: str | None, moves: Sequence[str] | None) -> "tuple[Assignment, str, Places]":
    """Return the plan asked for, how to call it in messages, and the log dirs that it names."""
    from ottla.placement import plans

    if (file is None) == (not moves):
        raise UsageError(
            "give the plan as --file plan.json (- is standard input) or as "
            "--partition flights-0=1,2,3, not both"
        )
    if file is not None:
        data, where = read_input(file, plans.MAX_PLAN_BYTES)
        return plans.parse_plan(data, where), where, plans.parse_places(data)
    entries = usage(plans.parse_move, moves or [], "--partition")
    try:
        return plans.checked(entries, "--partition"), "--partition", {}
    except plans.PlanError as error:
        raise UsageError(str(error)) from None


async def clear(
    client: "Client",
    topics: Collection[str],
    *,
    of: "Mapping[TopicPartition, Sequence[int]] | None" = None,
    kafka_output: bool = False,
) -> None:
    """Remove throttles from all brokers and these topics; `of`: replicas by partition."""
    from ottla.admin.operations import kafka_text
    from ottla.client import reassignments

    cleared = await reassignments.clear_throttles(client, topics)
    replicas = {b for ids in (of or {}).values() for b in ids}
    if kafka_output:
        live = await reassignments.racks(client)
        sys.stdout.write(kafka_text.cleared({*live, *replicas}, topics))
        return
    named = [f"broker {b}" for b in cleared.brokers] + [f"topic {t}" for t in cleared.topics]
    if named:
        say(f"throttles removed: {', '.join(named)}")
    for broker in sorted({*cleared.silent, *(replicas - set(await reassignments.racks(client)))}):
        say(f"broker {broker} does not respond: if it has a throttle, verify again once it does")


# --- interrupted ---------------------------------------------------------------------------------


async def tell_what_goes_on(client: "Client", topics: Iterable[str], *, unthrottled: bool) -> int:
    """Say what is in progress, with which throttles; return how many partitions are.

    `topics`: those whose throttles are looked for; `unthrottled`: they have just been removed.
    """
    from ottla.client import reassignments

    moving = len(await reassignments.in_progress(client))
    if not moving:
        say("interrupted; nothing is being reassigned")
        return 0
    say(
        f"interrupted; the reassignment of {plural(moving, 'partition')} continues"
        f"{', without a throttle' if unthrottled else ''}: `ottla reassign list` shows it, "
        "`ottla reassign cancel --all` stops it"
    )
    if not unthrottled:
        await tell_which_throttles_stay(client, topics)
    return moving


async def tell_which_throttles_stay(client: "Client", topics: Iterable[str]) -> None:
    """Say where throttles are set, and who removes them."""
    from ottla.client import reassignments, throttles

    there = await reassignments.replicas_of(client, topics)
    live = await reassignments.racks(client)
    kept, leased = await throttles.set_now(client, live, {tp.topic for tp in there})
    if leased:
        say(f"the brokers remove the throttle of {', '.join(leased)} soon after the end")
    if kept:
        say(
            f"the throttle of {', '.join(kept)} stays until it is removed: once it has ended, "
            "`ottla reassign verify` of the same plan or `ottla reassign throttles --remove` does"
        )
