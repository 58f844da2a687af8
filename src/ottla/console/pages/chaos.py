"""Chaos: brokers of this machine are killed, paused and restarted, with a client's view beside it.

Who may call: `application`, `live`.
"""

import time
from typing import Any

from starlette.responses import Response

from ottla.admin.operations import topics
from ottla.console.asked import Asked
from ottla.console.chaos import DEEDS
from ottla.console.page import Page, redirect
from ottla.console.pages import overview
from ottla.console.probe import SHOWN_S, bars
from ottla.console.state import Console
from ottla.model.errors import ErrorCode, OttlaError, UnknownTopicError

PROBE_TOPIC = "console-probe"
PROBE_PARTITIONS = 6
MOST_REPLICAS = 3
SLOW_S = 0.25
LATE_S = 2.0
WIDTH, ROW = 1000, 18
LINES_SHOWN = 15


async def page(console: Console, asked: Asked) -> Page:
    """Return the page."""
    found = await parts(console, asked)
    values = {name: value for part in found.values() for name, value in part.values.items()}
    values |= {"deeds": DEEDS, "probe_topic": PROBE_TOPIC}
    return Page("chaos.html", {"title": "Chaos", **values})


async def parts(console: Console, asked: Asked) -> dict[str, Page]:
    """Return what is updated live."""
    _check_local(console)
    found = await overview.parts(console, asked)
    chaos = console.chaos
    lines = list(chaos.lines)[: -LINES_SHOWN - 1 : -1]
    return {
        "brokers": found["brokers"],
        "events": found["events"],
        "deeds": Page("part_deeds.html", {"doing": chaos.doing, "lines": lines}),
        "view": Page("part_probe.html", _view(console)),
    }


def _check_local(console: Console) -> None:
    if console.folder is None:
        raise OttlaError(
            "only brokers that `ottla up` started on this machine are killed; start the console "
            "with --dir"
        )


async def do(console: Console, asked: Asked) -> Response:
    """Begin a deed."""
    _check_local(console)
    assert console.folder is not None
    deed = asked.choice("deed", DEEDS, "")
    broker = asked.number("broker", -1, 0, (1 << 31) - 1)
    console.folder.existing().broker(broker)
    console.chaos.begin(console.folder, deed, broker)
    return redirect("/chaos")


async def probe(console: Console, asked: Asked) -> Response:
    """Begin or stop the client that writes; its usual topic is created if it is not there."""
    _check_local(console)
    if asked.has("stop"):
        await console.probe.stop()
        return redirect("/chaos")
    topic = asked.needed("topic")
    try:
        await topics.describe_topic(console.client, topic)
    except UnknownTopicError:
        if topic != PROBE_TOPIC:
            raise
        replicas = min(MOST_REPLICAS, len(await console.client.broker_ids()))
        try:
            await topics.create_topic(
                console.client, topic, partitions=PROBE_PARTITIONS, replication_factor=replicas,
                settings={"retention.ms": "3600000", "min.insync.replicas": "1"},
            )  # fmt: skip
        except OttlaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
    await console.probe.begin(topic)
    return redirect("/chaos")


def _view(console: Console) -> dict[str, Any]:
    """Return the lanes with what is to be drawn of them."""
    now_s = time.monotonic()
    rows = []
    for lane in console.probe.lanes:
        drawn = [
            (
                f"{begin * WIDTH:.1f}",
                f"{max(1.0, (end - begin) * WIDTH):.1f}",
                "late" if took >= LATE_S else "slow" if took >= SLOW_S else "quick",
                took,
            )
            for begin, end, took in bars(lane, now_s)
        ]
        waits = None if lane.waits_since_s is None else now_s - lane.waits_since_s
        rows.append({"lane": lane, "bars": drawn, "waits": waits})
    return {
        "probe": console.probe, "rows_of_probe": rows, "width": WIDTH, "row": ROW,
        "seconds": SHOWN_S, "slow": SLOW_S, "late": LATE_S,
    }  # fmt: skip
