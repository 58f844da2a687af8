"""Chaos: brokers of this machine are killed, paused, cut off, restarted; and a client's view."""

import asyncio
import time

from ottla.console.asked import Asked
from ottla.console.chaos import CUT, DEEDS, HEAL
from ottla.console.page import Page
from ottla.console.pages import overview
from ottla.console.probe import SHOWN_S, bars
from ottla.console.state import Console
from ottla.local import faults
from ottla.local.cluster_dir import ClusterDir
from ottla.model.errors import OttlaError

PROBE_TOPIC = "console-probe"
CUT_FROM = {"all": "all others and ZooKeeper", "brokers": "all others", "zookeeper": "ZooKeeper"}
SLOW_S = 0.25
LATE_S = 2.0
WIDTH, ROW = 1000, 18
LINES_SHOWN = 15


async def page(console: Console, asked: Asked) -> Page:
    """Return the page."""
    found = await parts(console, asked)
    values = {name: value for part in found.values() for name, value in part.values.items()}
    values |= {
        "deeds": [deed for deed in DEEDS if deed not in (CUT, HEAL)],
        "cut_from": CUT_FROM,
        "probe_topic": PROBE_TOPIC,
    }
    return Page("chaos.html", {"title": "Chaos", **values})


async def parts(console: Console, asked: Asked) -> dict[str, Page]:
    """Return what is updated live."""
    folder = local(console)
    found = await overview.parts(console, asked)
    cuts = await asyncio.to_thread(faults.in_force, folder)
    chaos = console.chaos
    lines = list(chaos.lines)[: -LINES_SHOWN - 1 : -1]
    return {
        "brokers": found["brokers"],
        "events": found["events"],
        "cuts": Page("part_cuts.html", {"cuts": cuts}),
        "deeds": Page("part_deeds.html", {"doing": chaos.doing, "lines": lines}),
        "view": Page("part_probe.html", _view(console)),
    }


def local(console: Console) -> ClusterDir:
    """Return the folder of the cluster; OttlaError if it is not one of this machine."""
    if console.folder is None:
        raise OttlaError(
            "faults need brokers that `ottla up` started on this machine; start the console "
            "with --dir"
        )
    return console.folder


def _view(console: Console) -> dict[str, object]:
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
        "probe": console.probe,
        "rows_of_probe": rows,
        "width": WIDTH,
        "row": ROW,
        "seconds": SHOWN_S,
        "slow": SLOW_S,
        "late": LATE_S,
    }
