"""`ottla elect`: elections on request, as a person types them.

Invariants: before an unclean election it says who would lead and what would be lost, and asks, or
wants --yes; exit code 1 if any partition asked for has no leader as asked.
"""

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

from ottla.admin.connection import Target
from ottla.admin.options import DryRun, agreed, needs_yes, read_input, usage
from ottla.cli import Argument, Exit, Option, UsageError
from ottla.cli.output import Format, complain, print_result, say
from ottla.model.printable import plural

if TYPE_CHECKING:
    from ottla.admin.results import Elected
    from ottla.client.client import Client
    from ottla.client.elections import Balance, Outcome
    from ottla.client.unclean_elections import Preview
    from ottla.model.ids import TopicPartition

SHOWN = 20
"""So many partitions are previewed in full."""

KIND_HELP = (
    "preferred: back to the first replica, if it is in sync. "
    "unclean: out of sync replicas too, which may lose records."
)


def elect(
    target: Target,
    kind: Annotated[str, Argument(metavar="preferred|unclean", help=KIND_HELP)],
    partitions: Annotated[
        list[str] | None,
        Argument(metavar="[TOPIC-PARTITION]...", help="Partitions, such as flights-0"),
    ] = None,
    file: Annotated[
        str | None,
        Option(
            "--file",
            metavar="FILE",
            help='Partitions, as {"partitions":[{"topic":"t","partition":0}]}; - is standard input',
            hidden=("--path-to-json-file",),
        ),
    ] = None,
    every: Annotated[bool, Option("--all", help="All partitions that need an election")] = False,
    yes: Annotated[bool, Option("--yes", help="For unclean: accept that records are lost")] = (
        False
    ),
    dry_run: DryRun = False,
) -> None:
    from ottla.client import elections as electing
    from ottla.client.unclean_elections import leaders
    from ottla.placement.plans import MAX_PLAN_BYTES, parse_partition, parse_partitions

    if kind not in tuple(electing.Kind):
        raise UsageError(f"{kind!r}: write preferred or unclean")
    if [every, bool(partitions), file is not None].count(True) != 1:
        raise UsageError(
            "name partitions as TOPIC-PARTITION, or write --file or --all: one of them"
        )
    chosen = usage(parse_partition, partitions or [], "")
    unclean = kind == electing.Kind.unclean
    if unclean and not dry_run:
        needs_yes(yes, "an unclean election may lose acknowledged records")
    if file is not None:
        data, where = read_input(file, MAX_PLAN_BYTES)
        chosen = parse_partitions(data, where)
    wanted = None if every else chosen
    timeout_s = electing.TIMEOUT_MS / 1000 + 5
    previews: dict[TopicPartition, Preview] = {}
    if unclean:
        previews = target.ask(partial(_look, wanted), timeout_s=timeout_s)
        _print_previews(list(previews.values()))
        if previews and not dry_run:
            agreed(
                yes,
                f"Hold an unclean election of {plural(len(previews), 'partition')}?",
                "no election was held",
            )

    async def run(
        client: "Client",
    ) -> "tuple[list[Outcome], Balance | None, dict[TopicPartition, int]]":
        if dry_run:
            return await electing.would_elect(client, electing.Kind(kind), wanted), None, {}
        found = await electing.elect(client, electing.Kind(kind), wanted, _tell)
        elected = {o.partition.topic for o in found if o.result == electing.ELECTED}
        hoped = {o.partition for o in found if o.partition in previews and o.problem is None}
        led = await leaders(client, hoped) if hoped else {}
        return found, await electing.balance(client, elected) if elected else None, led

    found, balance, led = target.ask(run, timeout_s=timeout_s)
    if found or target.output is Format.json:
        print_result(
            target.output,
            [_elected(o, previews.get(o.partition), led) for o in found],
            ("partition", "result", ""),
            [(o.partition, o.result, o.problem or "") for o in found],
        )
    if not dry_run:
        _say_losses(found, previews, led)
    if balance is not None:
        elected = sum(o.result == electing.ELECTED for o in found)
        say(
            f"{plural(elected, 'leader')} elected; of these topics each broker leads "
            f"{balance.fewest} to {balance.most} partitions"
        )
    failed = [o for o in found if o.problem]
    if failed:
        count = plural(len(failed), "partition")
        complain(f"ottla elect: {count} failed; first {failed[0].partition}: {failed[0].problem}")
        sys.stdout.flush()
        raise Exit(1)
    if not found:
        say("no partition needs it")


async def _look(
    partitions: "Sequence[TopicPartition] | None", client: "Client"
) -> "dict[TopicPartition, Preview]":
    from ottla.client.unclean_elections import previews

    return {p.partition: p for p in await previews(client, partitions)}


def _elected(
    outcome: "Outcome", preview: "Preview | None", led: "dict[TopicPartition, int]"
) -> "Elected":
    from ottla.admin.results import Elected, LostRecords

    leader = led.get(outcome.partition, None if preview is None else preview.leader)
    lost = [] if preview is None else preview.losses(leader)
    return Elected(
        *outcome.partition,
        outcome.result,
        outcome.problem,
        leader,
        [LostRecords(loss.broker, loss.first, loss.last, loss.earlier) for loss in lost],
        None if preview is None else preview.recommendation,
    )


def _print_previews(previews: "Sequence[Preview]") -> None:
    """Say of each partition what its replicas have, who would lead, and what would be lost."""
    for preview in previews[:SHOWN]:
        say(f"{preview.partition} has no leader")
        for c in preview.candidates:
            if c.end is not None:
                end = f"its log ends at offset {c.end.offset:,}, leader epoch {c.end.epoch}"
            else:
                end = "it does not say where its log ends" if c.alive else "its log end is unknown"
            would = "; it would lead" if c.broker == preview.leader else ""
            say(f"  broker {c.broker}, {c.state}: {end}{would}")
        lost = preview.losses()
        if preview.leader is not None:
            say(f"  would be lost: {'; '.join(map(str, lost)) or 'nothing that is known of'}")
        say(f"  recommendation: {preview.recommendation}")
    if len(previews) > SHOWN:
        would_lose = sum(bool(preview.losses()) for preview in previews)
        say(
            f"and {plural(len(previews) - SHOWN, 'partition')} more; of {len(previews):,} in all "
            f"{would_lose:,} would lose records. --dry-run --output json shows each"
        )


def _say_losses(
    found: "Sequence[Outcome]",
    previews: "dict[TopicPartition, Preview]",
    led: "dict[TopicPartition, int]",
) -> None:
    losing = []
    for outcome in found:
        preview = previews.get(outcome.partition)
        if preview is not None and outcome.problem is None and outcome.partition in led:
            leader = led[outcome.partition]
            lost = "; ".join(map(str, preview.losses(leader)))
            if lost:
                losing.append(f"{outcome.partition}: broker {leader} leads; lost: {lost}")
    for line in losing[:SHOWN]:
        say(line)
    if len(losing) > SHOWN:
        say(f"and {plural(len(losing) - SHOWN, 'partition')} more lost records")


def _tell(done: int, of: int) -> None:
    say(f"{done:,} of {plural(of, 'partition')} done")
