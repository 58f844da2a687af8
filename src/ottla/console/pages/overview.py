"""The overview: brokers, the controller, what is wrong, what happened; doctor, and the way out."""

from itertools import groupby

from starlette.responses import HTMLResponse, Response

from ottla.admin.operations.status import BrokerStatus
from ottla.console.asked import Asked
from ottla.console.page import Page
from ottla.console.state import Console
from ottla.model.printable import plural

EVENTS_SHOWN = 40
PARTITIONS_SHOWN = 5
"""In one second."""


async def page(console: Console, asked: Asked) -> Page:
    """Return the whole page."""
    found = await parts(console, asked)
    values = {name: value for part in found.values() for name, value in part.values.items()}
    return Page("overview.html", {"title": "Overview", **values})


async def parts(console: Console, _asked: Asked) -> dict[str, Page]:
    """Return what is updated live."""
    look = await console.watcher.look()
    changes = console.watcher.changes
    newest = shortened(list(changes.events)[::-1])[:EVENTS_SHOWN]
    counts = console.watcher.counts()
    wrong = counts.without_leader, counts.under_replicated
    console.diagnosing.begin(about=(look.controller, frozenset(look.brokers), wrong))
    return {
        "health": Page("part_health.html", {"look": look, "counts": counts, **health(console)}),
        "brokers": Page("part_brokers.html", {"look": look, "rows": _brokers(console)}),
        "events": Page("part_events.html", {"events": newest}),
    }


def shortened(lines: list[str]) -> list[str]:
    """Return lines of events with the partitions of one second in few of them.

    A broker that dies changes all its partitions: what happened to it must not be lost among them.
    """
    found: list[str] = []
    for clock, group in groupby(lines, key=lambda line: line.partition("  ")[0]):
        shown = left = 0
        for line in group:
            if line.partition("  ")[2].startswith(("broker ", "controller ")):
                found.append(line)
            elif shown < PARTITIONS_SHOWN:
                shown += 1
                found.append(line)
            else:
                left += 1
        if left:
            found.append(f"{clock}  and {plural(left, 'more change')} of partitions")
    return found


def health(console: Console) -> dict[str, object]:
    """Return what the doctor found, in numbers."""
    found = console.diagnosing.findings
    return {
        "diagnosis": console.diagnosing,
        "problems": None if found is None else sum(f.severity != "risk" for f in found),
        "risks": None if found is None else sum(f.severity == "risk" for f in found),
    }


def _brokers(console: Console) -> list[dict[str, object]]:
    processes = local_processes(console)
    return [
        {
            "row": row,
            "process": processes.get(row.broker),
            "silent": console.watcher.silent.get(row.broker),
        }
        for row in console.watcher.brokers()
    ]


def local_processes(console: Console) -> dict[int, BrokerStatus]:
    """Return the processes of the brokers that `ottla up` started; none of any other cluster."""
    cluster = None if console.folder is None else console.folder.load()
    if console.folder is None or cluster is None:
        return {}
    found = {}
    for broker in cluster.brokers:
        running = broker.running
        found[broker.id] = BrokerStatus(
            broker.id,
            broker.address,
            alive=running,
            pid=broker.process.pid if broker.process is not None and running else None,
            paused=running and broker.paused,
            reason=None if running else console.folder.why_down(broker),
        )
    return found


async def doctor(console: Console, asked: Asked) -> Page:
    """Return the findings there are; `again` asks for new ones."""
    console.diagnosing.begin(again=asked.has("again"))
    return Page("doctor.html", {"title": "Doctor", **health(console)})


async def findings(console: Console, _asked: Asked) -> dict[str, Page]:
    """Return what is updated live: the findings, once they are there."""
    return {"findings": Page("part_doctor.html", health(console))}


LEFT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>ottla console</title>
<link rel="icon" href="data:,"><h1>All sessions ended</h1>
<p>To open the console again, use the link that
<code>ottla console</code> printed last.</p></html>
"""


async def leave(console: Console, _asked: Asked) -> Response:
    """End all sessions; the next link lets a browser in again."""
    console.sessions.leave_all()
    return HTMLResponse(LEFT)
