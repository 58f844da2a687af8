"""`ottla reassign execute`: begin a plan, or change the throttle of the one in progress.

Invariants: stdout carries the assignment before, so that `reassign execute --file plan.json >
back.json` works; it is in a file before anything is changed; what waits removes throttles however
it ends; what goes on then is said.
"""

import asyncio
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from ottla.admin.commands.reassign_plan import (
    File,
    KafkaOutput,
    Moves,
    PlanOutput,
    Wait,
    clear,
    plan_of,
    print_plan,
    tell_what_goes_on,
    tell_which_throttles_stay,
)
from ottla.admin.connection import Connection
from ottla.admin.options import DryRun
from ottla.cli import Option, UsageError
from ottla.cli.output import Format, say
from ottla.cli.progress import MoveProgress
from ottla.model.errors import OttlaError
from ottla.model.printable import plural

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.client.reassignments import Prepared
    from ottla.placement.plans import Places


@dataclass(kw_only=True)
class How:
    """How a plan is carried out."""

    throttle: Annotated[
        int | None,
        Option(metavar="BYTES/S", help="Limit copying, per broker and direction", min=1),
    ] = None
    log_dirs_throttle: Annotated[
        int | None,
        Option(
            "--log-dirs-throttle",
            metavar="BYTES/S",
            help="Limit moves between log directories of a broker",
            min=1,
            hidden=("--replica-alter-log-dirs-throttle",),
        ),
    ] = None
    wait: Wait = None
    kafka_output: KafkaOutput = False

    @property
    def throttled(self) -> bool:
        return self.throttle is not None or self.log_dirs_throttle is not None


def execute(
    how: How,
    target: Connection,
    file: File = None,
    partition: Moves = None,
    additional: Annotated[
        bool, Option("--additional", help="Start although other moves are in progress")
    ] = False,
    rollback_file: Annotated[
        str | None,
        Option(
            metavar="FILE", help="Write the current assignment to this file [default: a new file]"
        ),
    ] = None,
    dry_run: DryRun = False,
    output: PlanOutput = Format.json,
) -> None:
    from ottla.admin.operations import kafka_text, way_back
    from ottla.client import reassignments
    from ottla.placement import plans

    plan, where, places = plan_of(file, partition)
    if how.log_dirs_throttle is not None and not places:
        raise UsageError("--log-dirs-throttle: the plan names no log_dirs")

    async def run(client: "Client") -> int:
        prepared = await reassignments.prepare(
            client, plan, where, additional=additional, throttle=how.throttle
        )
        if not dry_run and not prepared.running:
            path = way_back.write(plans.format_plan(prepared.rollback), rollback_file)
            say(f"the way back is in {path}")
        if how.kafka_output:
            sys.stdout.write(kafka_text.current_assignment(prepared.rollback))
            sys.stdout.flush()
        else:
            print_plan(output, prepared.rollback)
        if dry_run:
            say(f"{plural(len(plan), 'partition')} can be reassigned; nothing was changed")
            return 0
        try:
            return await _begin(client, how, places, prepared)
        except asyncio.CancelledError:  # Ctrl-C
            if how.throttled:
                await clear(client, prepared.throttled.leaders)
            await tell_what_goes_on(client, prepared.throttled.leaders, unthrottled=how.throttled)
            raise

    left = target.ask(run)
    if left:
        raise OttlaError(
            f"after {how.wait:g} s {plural(left, 'partition')} still moving; "
            "`ottla reassign verify` tells how far they are"
        )


async def _begin(client: "Client", how: How, places: "Places", prepared: "Prepared") -> int:
    """Send the plan, wait if that was wanted; return how many partitions are not done then."""
    from ottla.admin.operations import kafka_text
    from ottla.client import log_dirs, reassignments

    plan, throttle = prepared.plan, how.throttle
    unleased = await reassignments.execute(client, prepared, throttle)
    if how.kafka_output:
        sys.stdout.write(kafka_text.started(plan, throttle, how.log_dirs_throttle))
        sys.stdout.flush()
    if prepared.running:
        say(f"it is in progress already; its throttle is {throttle:,} bytes/s now")
    else:
        say(f"reassignment of {plural(len(plan), 'partition')} began")
    if how.log_dirs_throttle is not None:
        from ottla.client import throttles

        unleased += await throttles.lease(client, {broker for _, broker in places})
    if places:
        await log_dirs.place(client, places, how.log_dirs_throttle)
        say(f"{plural(len(places), 'replica')} sent to log dirs")
    if throttle is not None:
        for broker in prepared.throttled.brokers:
            if broker not in prepared.live:
                say(f"broker {broker} is down: no throttle is set on it")
    if how.wait is None:
        if unleased:
            say("run `ottla reassign verify` until it is done: it removes the throttle")
        elif how.throttled:
            say(
                "the brokers remove the throttle soon after the end; "
                "`ottla reassign verify` does at once"
            )
        return 0
    with MoveProgress() as shown:
        left = await reassignments.wait(client, plan, how.wait, shown.tell)
    if left == 0 and places:
        left = await log_dirs.wait(client, places, how.wait)
    if left and how.throttled:
        await tell_which_throttles_stay(client, prepared.throttled.leaders)
    elif how.throttled:
        if await reassignments.in_progress(client):
            say("other reassignments are in progress: the throttles stay until they end")
        else:
            await clear(client, prepared.throttled.leaders)
    return left
