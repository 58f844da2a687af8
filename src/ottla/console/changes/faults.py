"""Faults of brokers of this machine: what each would come to, then brought about.

Invariants: what is done is done to the process that the preview named, and to no other.
"""

import asyncio
from collections.abc import Sequence

from starlette.responses import Response

from ottla.admin.top.changes import BrokerRow, Look
from ottla.console.asked import Asked
from ottla.console.changes.preview import Preview, preview
from ottla.console.chaos import CUT, DEEDS, HEAL, Wanted
from ottla.console.page import Page, redirect
from ottla.console.pages.chaos import CUT_FROM, local
from ottla.console.rendering import path
from ottla.console.state import Console
from ottla.local import faults
from ottla.local.cluster_dir import LocalBroker, LocalCluster
from ottla.model.errors import OttlaError
from ottla.model.printable import plural

BACK = "/chaos"
WHAT = {
    "kill": "SIGKILL, like a crash: leaderships are not handed over.",
    "pause": "SIGSTOP: the broker keeps its connections but does not respond until it is resumed.",
    "resume": "SIGCONT: the broker continues.",
    "stop": "SIGTERM: the broker hands over its leaderships, then exits.",
    "start": "Starts the broker's process.",
    "restart": "Stops the broker gracefully and starts it again, once all partitions are in sync.",
}
EVENTS = {"kill": "kill", "pause": "kill", "stop": "shutdown", "restart": "restart"}
"""What of /whatif is like it."""


async def do(console: Console, asked: Asked) -> Page | Response:
    """Return what would be done to which process; with `do`, begin it."""
    folder = local(console)
    deed = asked.choice("deed", DEEDS, "")
    if deed == HEAL:
        if asked.has("do"):
            console.chaos.begin(folder, Wanted(HEAL))
            return redirect(BACK)
        return _heal(await asyncio.to_thread(faults.in_force, folder))
    cluster = folder.existing()
    broker = cluster.broker(asked.number("broker", -1, 0, (1 << 31) - 1))
    wanted = Wanted(deed, broker.id, _from(asked, broker, cluster) if deed == CUT else "")
    if asked.has("do"):
        if asked.text("process") != _process(broker):
            raise OttlaError(f"broker {broker.id} has a new process; reload the page")
        console.chaos.begin(folder, wanted)
        return redirect(BACK)
    return _preview(await console.watcher.look(), console.watcher.brokers(), broker, wanted)


def _from(asked: Asked, broker: LocalBroker, cluster: LocalCluster) -> str:
    from_ = asked.text("from", "all")
    faults.targets(broker.id, from_, [b.id for b in cluster.brokers])
    return from_


def _process(broker: LocalBroker) -> str:
    return str(broker.process.pid) if broker.process is not None and broker.running else ""


def _heal(cuts: dict[int, str]) -> Page:
    return preview(
        Preview(
            "Heal",
            ["Restores all cut connections." if cuts else "No broker is cut off."],
            ("broker", "cut off from"),
            list(cuts.items()),
            "/chaos/do",
            [("deed", HEAL)],
            "Heal all",
            BACK,
        )
    )


def _preview(look: Look, rows: Sequence[BrokerRow], broker: LocalBroker, wanted: Wanted) -> Page:
    number = broker.id
    row = next((r for r in rows if r.broker == number), None)
    alone = sum(p.isr == (number,) for p in look.partitions.values())
    fields = [("deed", wanted.deed), ("broker", str(number)), ("process", _process(broker))]
    what = WHAT.get(wanted.deed, "")
    if wanted.deed == CUT:
        whom = CUT_FROM.get(wanted.from_, f"broker {wanted.from_}")
        what = (
            f"Nothing gets through between the broker and {whom}, in either direction. "
            "Clients still reach it. "
            f"The cut ends after {faults.LASTS_S / 60:g} min, with Heal, or when the broker "
            "restarts."
        )
        fields.append(("from", wanted.from_))
    lines = [what]
    if alone and wanted.deed not in ("start", "resume"):
        lines.append(f"It is the only in-sync replica of {plural(alone, 'partition')}.")
    event = EVENTS.get(wanted.deed)
    state = "down" if not broker.running else "paused" if broker.paused else "up"
    return preview(
        Preview(
            f"{wanted.deed.capitalize()} broker {number}",
            lines,
            ("broker", "state", "process", "leads", "replicas", "what"),
            [
                (
                    number,
                    state,
                    _process(broker) or None,
                    row.leaders if row else None,
                    row.replicas if row else None,
                    wanted.words,
                )
            ],
            "/chaos/do",
            fields,
            f"{wanted.deed.capitalize()} broker {number}",
            BACK,
            see=("What would happen", path("whatif", broker=number, event=event))
            if event
            else None,
        )
    )
