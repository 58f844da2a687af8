"""`ottla log-dirs`: where replicas lie, how full the volumes are, what is on its way.

Invariants: a broker that is silent is named on stderr, and then and for a log dir that is offline
the exit code is 1.
"""

from typing import TYPE_CHECKING, Annotated

from ottla.admin.connection import Target
from ottla.admin.options import usage
from ottla.cli import Argument, Exit, Option
from ottla.cli.output import Format, complain, print_result, say
from ottla.model.errors import OttlaError
from ottla.model.printable import plural

if TYPE_CHECKING:
    from ottla.client.client import Client


def log_dirs(
    target: Target,
    topics: Annotated[
        list[str] | None,
        Argument(metavar="[TOPIC]...", complete="topic", help="Only replicas of these topics"),
    ] = None,
    brokers: Annotated[
        str | None,
        Option(metavar="ID[,ID…]", help="Only these brokers [default: all that are alive]"),
    ] = None,
) -> None:
    from ottla.client import log_dirs as dirs
    from ottla.client import topics as listing
    from ottla.placement import plans

    ids = usage(plans.parse_brokers, [brokers] if brokers is not None else [], "--brokers")

    async def run(client: "Client") -> dirs.Described:
        chosen = ids[0] if ids else await client.broker_ids()
        missing = await listing.missing_topics(client, topics) if topics else []
        if missing:
            raise OttlaError(
                f"topic {missing[0]} does not exist; `ottla topics list` shows those that do"
            )
        return await dirs.describe(client, chosen, topics or ())

    found = target.ask(run)
    rows = []
    for one in found.dirs:
        here = [r for r in found.replicas if (r.broker, r.path) == (one.broker, one.path)]
        arriving = sum(r.is_future for r in here)
        size = sum(r.size for r in here)
        rows.append((one, len(here) - arriving, arriving, size))
    moving = [r for r in found.replicas if r.is_future]
    result = dirs.LogDirs(
        [
            dirs.LogDirRow(
                one.broker,
                one.path,
                one.problem or None,
                dirs.known(one.total),
                dirs.known(one.usable),
                replicas,
                arriving,
                size,
            )
            for one, replicas, arriving, size in rows
        ],
        [
            dirs.ReplicaRow(*r.partition, r.broker, r.path, r.size, r.lag, r.is_future)
            for r in sorted(found.replicas)
        ],
    )
    print_result(
        target.output,
        result,
        ("broker", "log dir", "replicas", "arriving", "MB", "free MB", "of MB", ""),
        [
            (
                d.broker,
                d.path,
                d.replicas,
                d.arriving,
                _mb(d.size),
                _mb(d.usable),
                _mb(d.total),
                d.problem or "",
            )
            for d in result.dirs
        ],
    )
    if target.output is not Format.json:
        for r in sorted(moving):
            say(f"{r.partition} on broker {r.broker} moves to {r.path}: {_to_go(r.lag)}")
    for broker in found.silent:
        complain(f"broker {broker} does not respond")
    for problem in found.refused:
        complain(problem)
    if found.silent or found.refused or any(one.problem for one in found.dirs):
        raise Exit(1)


def _to_go(lag: int) -> str:
    return f"{plural(lag, 'record')} to go" if lag >= 0 else "waits for its leader"


def _mb(size: int | None) -> str:
    return "-" if size is None else f"{size / 1e6:.1f}"
