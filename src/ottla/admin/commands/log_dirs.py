"""`ottla log-dirs`: where replicas lie, how full the volumes are, what is on its way.

Invariants: a broker that is silent is named on stderr, and then and for a log dir that is offline
the exit code is 1.
"""

from typing import Annotated, Any

from ottla.admin.options import Bootstrap, Dir, Output, ask, usage
from ottla.admin.output import Format, complain, print_structured, print_table, say, structured
from ottla.cli import Argument, Exit, Option
from ottla.model.errors import OttlaError
from ottla.model.printable import plural


def log_dirs(
    topics: Annotated[
        list[str] | None,
        Argument(metavar="[TOPIC]...", complete="topic", help="Only replicas of these topics"),
    ] = None,
    brokers: Annotated[
        str | None,
        Option(metavar="ID[,ID…]", help="Only these brokers [default: all that are alive]"),
    ] = None,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    from ottla.admin.operations import log_dirs as dirs
    from ottla.admin.operations import plans, reassign
    from ottla.admin.operations import topics as listing

    ids = usage(plans.parse_brokers, [brokers] if brokers is not None else [], "--brokers")

    async def run(client: Any) -> dirs.Described:
        chosen = ids[0] if ids else await reassign.racks(client)
        missing = await listing.missing_topics(client, topics) if topics else []
        if missing:
            raise OttlaError(
                f"topic {missing[0]} does not exist; `ottla topics list` shows those that do"
            )
        return await dirs.describe(client, chosen, topics or ())

    found = ask(directory, bootstrap_server, run)
    rows = []
    for one in found.dirs:
        here = [r for r in found.replicas if (r.broker, r.path) == (one.broker, one.path)]
        arriving = sum(r.is_future for r in here)
        size = sum(r.size for r in here)
        rows.append((one, len(here) - arriving, arriving, size))
    moving = [r for r in found.replicas if r.is_future]
    if structured(output):
        print_structured(
            output,
            {
                "dirs": [
                    {**one._asdict(), "replicas": replicas, "arriving": arriving, "size": size}
                    for one, replicas, arriving, size in rows
                ],
                "replicas": [
                    {**r._asdict(), "partition": str(r.partition)} for r in sorted(found.replicas)
                ],
            },
        )
    else:
        print_table(
            ("broker", "log dir", "replicas", "arriving", "MB", "free MB", "of MB", ""),
            [
                (one.broker, one.path, replicas, arriving, _mb(size), _mb(one.usable),
                 _mb(one.total), one.problem)
                for one, replicas, arriving, size in rows
            ],
        )  # fmt: skip
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


def _mb(size: int) -> str:
    return "-" if size < 0 else f"{size / 1e6:.1f}"
