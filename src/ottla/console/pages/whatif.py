"""What if: brokers die, stop, restart or are drained; what would happen, before it does.

Invariants: nothing changes; what is computed is `explain.whatif`'s, on the newest of `snapshots`;
one question at a time.
"""

from collections.abc import Callable

from ottla.admin.top.changes import Look
from ottla.console.asked import Asked, BadRequestError
from ottla.console.page import Page
from ottla.console.state import Console
from ottla.explain.whatif import Report, WhatIf
from ottla.placement.snapshot_file import Snapshot

MOST_BROKERS = 1000
SHOWN = 100
EVENTS: dict[str, tuple[str, Callable[[WhatIf, list[int]], None]]] = {
    "kill": ("fail at the same time", lambda what, ids: what.kill(ids, in_turn=False)),
    "kill-in-turn": ("fail one after another", lambda what, ids: what.kill(ids, in_turn=True)),
    "shutdown": ("are shut down one after another", lambda what, ids: what.shut_down(ids)),
    "restart": ("restart one after another", lambda what, ids: what.rolling_restart(ids)),
    "drain": ("are drained (one broker)", lambda what, ids: what.drain(ids[0])),
}


async def page(console: Console, asked: Asked) -> Page:
    """Return the form, and what would happen if it was filled in."""
    look = await console.watcher.look()
    event = asked.choice("event", EVENTS, "kill")
    chosen = asked.numbers("broker", MOST_BROKERS)
    report, clock = None, ""
    if chosen:
        report, clock = await outcome(console, look, event, chosen)
    else:
        console.snapshots.prepare(look)  # while the form is filled in
    values = {
        "brokers": sorted(look.brokers),
        "events": {k: words for k, (words, _) in EVENTS.items()},
        "event": event,
        "chosen": chosen,
        "report": report,
        "clock": clock,
        "shown": SHOWN,
        "scenario": f"Brokers that {EVENTS[event][0]}: {', '.join(map(str, chosen))}",
        **_loads(report),
    }
    return Page("whatif.html", {"title": "What if", **values})


async def outcome(
    console: Console, look: Look, event: str, brokers: list[int]
) -> tuple[Report, str]:
    """Return what an event would come to, and when the cluster was as that assumes."""
    if event == "drain" and len(brokers) != 1:
        raise BadRequestError("drain: choose exactly one broker")
    taken = await console.snapshots.get(look)
    return await console.alone(_compute, taken.snapshot, event, brokers), taken.clock


def _compute(snapshot: Snapshot, event: str, brokers: list[int]) -> Report:
    what = WhatIf(snapshot)
    EVENTS[event][1](what, brokers)
    return what.report()


def _loads(report: Report | None) -> dict[str, object]:
    """Return each broker's load after, with that before."""
    if report is None:
        return {"loads": []}
    before = {load.broker: load for load in report.before.brokers}
    return {"loads": [(before.get(load.broker), load) for load in report.after.brokers]}
