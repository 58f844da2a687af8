"""`ottla top`: a cluster as it changes, on a whole terminal; in a pipe, what happens as lines.

Invariants: nothing is changed; over ssh, from 80 by 24 characters on; Ctrl-C and q are the ways to
stop, not failures.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

from ottla.admin.connection import Target
from ottla.cli import Option
from ottla.cli.output import Format, print_json_line, print_line

if TYPE_CHECKING:
    from ottla.admin.top.looking import Looking, Metrics
    from ottla.client.client import Client

LONGEST_S = 30 * 86_400.0


def top(
    target: Target,
    interval: Annotated[float, Option(metavar="SECONDS", help="Interval", min=0.2)] = 2.0,
    count: Annotated[
        int | None, Option(help="Print changes N times, without a screen", min=1)
    ] = None,
) -> None:
    screen = count is None and target.output is not Format.json and sys.stdout.isatty()
    if screen:
        _check_extra()

    async def question(client: "Client") -> None:
        from ottla.admin.top.looking import Looking

        looking = Looking(client, _metrics(target))
        if screen:
            from ottla.admin.top.screen import Top
            from ottla.model.waits import silence

            silence()
            await Top(looking.look, interval, _explainer(target)).run_async()
        else:
            await _lines(looking, interval, count, target.output)

    with contextlib.suppress(KeyboardInterrupt):
        target.ask(question, timeout_s=LONGEST_S if screen else None)


def _check_extra() -> None:
    """Say what is not installed before a cluster is asked."""
    from importlib.util import find_spec  # only for a screen

    if find_spec("textual") is None:
        from ottla.model.errors import StartupError

        raise StartupError(
            "the screen of top needs textual, not installed here: pip install 'ottla[top]'; "
            "--output json and a pipe need nothing"
        )


async def _lines(looking: "Looking", interval: float, count: int | None, output: Format) -> None:
    from ottla.admin.top.changes import Changes

    changes, done = Changes(), 0
    while True:
        look = await looking.look()
        events = changes.take(look)
        done += 1
        if output is Format.json:
            from ottla.admin.top.looking import LookResult

            now_ms = int(time.time() * 1000)
            print_json_line(LookResult.of(changes, now_ms, events))
        else:
            for line in events:
                print_line(line)
        sys.stdout.flush()
        if done == count:
            return
        await asyncio.sleep(interval)


def _metrics(target: Target) -> "Callable[[int], Metrics | None]":
    """Return what gives the metrics of a broker of the folder that is meant."""
    from ottla.admin.operations.status import metrics_of

    if target.where.address is not None:
        return lambda _: None
    folder = target.where.folder
    return lambda broker: metrics_of(folder.metrics_socket(broker))


def _explainer(target: Target) -> "Callable[[object], Awaitable[str | None]]":
    """Return what tells a partition's history: `ottla why`, of the journals of the folder.

    Of a cluster that is known by its address there are no journals here: None is returned then.
    """
    cluster = target.where

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
