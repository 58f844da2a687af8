"""`ottla reassign throttles`: throttles that are left over from reassignments.

Invariants: nothing is removed without --remove; exit code 1 while there are some.
"""

from typing import TYPE_CHECKING, Annotated

from ottla.admin.connection import Target
from ottla.cli import Exit, Option
from ottla.cli.output import Format, print_result, say
from ottla.model.printable import plural

if TYPE_CHECKING:
    from ottla.admin.operations.left_over_throttles import Forgotten
    from ottla.client.client import Client


def throttles(
    target: Target,
    remove: Annotated[bool, Option("--remove", help="Remove the throttles")] = False,
) -> None:
    from ottla.admin.operations import left_over_throttles as operation

    async def run(client: "Client") -> "list[Forgotten]":
        found = await operation.forgotten(client)
        if remove:
            await operation.remove(client, found)
        return found

    found = target.ask(run)
    if found or target.output is Format.json:
        print_result(
            target.output,
            found,
            ("of", "setting", "value"),
            [
                (f"{f.kind} {f.name}", key, value)
                for f in found
                for key, value in f.settings.items()
            ],
        )
    if not found:
        say("no throttle is left over")
    elif remove:
        say(f"throttles removed from {plural(len(found), 'broker or topic', 'brokers and topics')}")
    else:
        say("`ottla reassign throttles --remove` removes them")
        raise Exit(1)
