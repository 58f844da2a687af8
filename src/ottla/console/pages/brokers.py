"""One broker: what it leads and keeps, its log dirs and figures."""

from ottla.client import log_dirs
from ottla.console.asked import Asked
from ottla.console.page import Page
from ottla.console.pages.overview import local_processes
from ottla.console.state import Console
from ottla.model.errors import BrokerNotAliveError


async def one(console: Console, asked: Asked) -> Page:
    """Return one broker, a dead one too if it has replicas."""
    broker = asked.number("id", -1, 0, (1 << 31) - 1)
    look = await console.watcher.look()
    row = next((r for r in console.watcher.brokers() if r.broker == broker), None)
    if row is None:
        known = ", ".join(map(str, sorted(look.brokers)))
        raise BrokerNotAliveError(f"broker {broker} does not exist; known brokers: {known}")
    found = None
    if row.facts is not None and broker not in console.watcher.silent:
        found = await log_dirs.describe(console.client, [broker])
    values = {
        "row": row,
        "silent": console.watcher.silent.get(broker),
        "process": local_processes(console).get(broker),
        "dirs": () if found is None else found.dirs,
        "used": {}
        if found is None
        else {d.path: sum(r.size for r in found.replicas if r.path == d.path) for d in found.dirs},
    }
    return Page("broker.html", {"title": f"Broker {broker}", **values})
