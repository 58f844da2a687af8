"""`ottla top`: a cluster as it changes, on a whole terminal; in a pipe, what happens as lines.

Invariants: nothing is changed; over ssh, from 80 by 24 characters on; Ctrl-C and q are the ways to
stop, not failures.
"""

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Annotated, Any

from ottla.admin.options import Bootstrap, Dir, Output, ask
from ottla.admin.output import Format, print_line, structured
from ottla.cli import Option

LONGEST_S = 30 * 86_400.0


def top(
    interval: Annotated[float, Option(metavar="SECONDS", help="Interval", min=0.2)] = 2.0,
    count: Annotated[
        int | None, Option(help="Print changes N times, without a screen", min=1)
    ] = None,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    screen = count is None and not structured(output) and sys.stdout.isatty()
    if screen:
        _check_extra()

    async def question(client: Any) -> None:
        from ottla.admin.top.looking import Looking

        looking = Looking(client, _metrics(directory, bootstrap_server))
        if screen:
            from ottla.admin.top.screen import Top
            from ottla.admin.waits import silence

            silence()
            await Top(looking.look, interval, _explainer(directory, bootstrap_server)).run_async()
        else:
            await _lines(looking, interval, count, json=structured(output))

    with contextlib.suppress(KeyboardInterrupt):
        ask(directory, bootstrap_server, question, timeout_s=LONGEST_S if screen else None)


def _check_extra() -> None:
    """Say what is not installed before a cluster is asked."""
    from importlib.util import find_spec  # only for a screen

    if find_spec("textual") is None:
        from ottla.model.errors import StartupError

        raise StartupError(
            "the screen of top needs textual, not installed here: pip install 'ottla[top]'; "
            "--output json and a pipe need nothing"
        )


async def _lines(looking: Any, interval: float, count: int | None, *, json: bool) -> None:
    from ottla.admin.top.changes import Changes

    changes, done = Changes(), 0
    while True:
        found = changes.take(await looking.look())
        done += 1
        if json:
            _print_json(changes, found)
        else:
            for line in found:
                print_line(line)
        sys.stdout.flush()
        if done == count:
            return
        await asyncio.sleep(interval)


def _print_json(changes: Any, events: list[str]) -> None:
    import json  # only where it is printed

    look = changes.look
    value = {
        "time": look.clock,
        "controller": look.controller,
        "problem": look.problem or None,
        "brokers": [
            {
                "broker": r.broker, "alive": r.facts is not None, "leaders": r.leaders,
                "replicas": r.replicas, "out_of_sync": r.out_of_sync, "written_per_s": r.written,
                "requests_per_s": None if r.facts is None else r.facts.requests,
                "produce_p99_ms": None if r.facts is None else r.facts.p99_ms,
                "idle": None if r.facts is None else r.facts.idle,
            }
            for r in changes.brokers()
        ],
        "topics": [
            {
                "topic": r.topic, "partitions": r.partitions, "without_leader": r.without_leader,
                "under_replicated": r.under_replicated, "moving": r.moving,
                "written_per_s": r.written, "records": r.end,
            }
            for r in changes.topics()
        ],
        "reassignments": _moves(look),
        "groups": {name: group._asdict() for name, group in (look.groups or {}).items()},
        "events": events,
    }  # fmt: skip
    print_line(json.dumps(value))


def _moves(look: Any) -> dict[str, object] | None:
    if not look.moves:
        return None
    known = look.estimate
    return {
        "partitions": len(look.moves),
        "bytes_copied": None if known is None else known.copied,
        "bytes": None if known is None else known.of,
        "bytes_per_s": None if known is None else known.rate,
        "seconds_left": None if known is None else known.left_s,
    }


def _metrics(directory: Path | None, bootstrap_server: str | None) -> Any:
    """Return what gives the metrics of a broker of the folder that is meant."""
    from ottla.admin.connection import where
    from ottla.admin.operations.status import metrics_of

    cluster = where(bootstrap_server, directory)
    if cluster.address is not None:
        return lambda _: None
    folder = cluster.folder
    return lambda broker: metrics_of(folder.metrics_socket(broker))


def _explainer(directory: Path | None, bootstrap_server: str | None) -> Any:
    """Return what tells a partition's history: `ottla why`, of the journals of the folder.

    Of a cluster that is known by its address there are no journals here: None is returned then.
    """
    from ottla.admin.connection import where

    cluster = where(bootstrap_server, directory)

    async def explain(tp: object) -> str | None:
        if cluster.address is not None:
            return None
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "ottla", "why", str(tp), "--dir", str(cluster.folder.path),
            "--output", "json", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        printed, said = await process.communicate()
        if process.returncode != 0:
            return said.decode(errors="replace")
        import json  # only where a history is asked for

        from ottla.admin.top import partition_text

        return partition_text.history(json.loads(printed))

    return explain
