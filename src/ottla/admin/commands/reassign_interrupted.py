"""What is said of a reassignment when whoever waited for it was interrupted.

Invariants: what goes on is said, each throttle that stays is named, and so is the way to remove it.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.cli.output import say
from ottla.model.printable import plural

if TYPE_CHECKING:
    from ottla.net.client import Client


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
