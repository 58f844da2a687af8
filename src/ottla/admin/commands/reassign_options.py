"""What the commands of reassignments share: plans as typed, throttles, what an interrupt leaves."""

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from ottla.admin.options import read_input, usage
from ottla.cli import Option, UsageError
from ottla.cli.output import say
from ottla.model.printable import plural

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.model.ids import TopicPartition
    from ottla.placement.plans import Assignment, Places

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
    from ottla.admin.operations import kafka_text, reassign

    cleared = await reassign.clear_throttles(client, topics)
    replicas = {b for ids in (of or {}).values() for b in ids}
    if kafka_output:
        live = await reassign.racks(client)
        sys.stdout.write(kafka_text.cleared({*live, *replicas}, topics))
        return
    named = [f"broker {b}" for b in cleared.brokers] + [f"topic {t}" for t in cleared.topics]
    if named:
        say(f"throttles removed: {', '.join(named)}")
    for broker in sorted({*cleared.silent, *(replicas - set(await reassign.racks(client)))}):
        say(f"broker {broker} does not respond: if it has a throttle, verify again once it does")


# --- interrupted ---------------------------------------------------------------------------------


async def tell_what_goes_on(client: "Client", topics: Iterable[str], *, unthrottled: bool) -> int:
    """Say what is in progress, with which throttles; return how many partitions are.

    `topics`: those whose throttles are looked for; `unthrottled`: they have just been removed.
    """
    from ottla.admin.operations import reassign

    moving = len(await reassign.in_progress(client))
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
    from ottla.admin.operations import reassign, throttles

    there = await reassign.replicas_of(client, topics)
    live = await reassign.racks(client)
    kept, leased = await throttles.set_now(client, live, {tp.topic for tp in there})
    if leased:
        say(f"the brokers remove the throttle of {', '.join(leased)} soon after the end")
    if kept:
        say(
            f"the throttle of {', '.join(kept)} stays until it is removed: once it has ended, "
            "`ottla reassign verify` of the same plan or `ottla reassign throttles --remove` does"
        )
