"""Groups: the list with lag, and one group with its members and partitions.

Who may call: `application`. Invariants: lag in the list is the watcher's, a few seconds old; that
of one group is asked for when its page is.
"""

from ottla.admin.operations import groups
from ottla.console.asked import Asked
from ottla.console.page import Page
from ottla.console.rendering import paged
from ottla.console.state import Console

PAGE_ROWS = 100


async def listed(console: Console, asked: Asked) -> Page:
    """Return a page of the list."""
    look = await console.watcher.look()
    wanted = asked.text("q")
    found = [g for g in await groups.list_groups(console.client) if wanted in g.group]
    shown, pages = paged(found, asked.number("page", 1, 1, 1 << 31), PAGE_ROWS)
    values = {"rows": shown, "pages": pages, "q": wanted, "known": look.groups or {}}
    return Page("groups.html", {"title": "Groups", **values})


async def one(console: Console, asked: Asked) -> Page:
    """Return one group."""
    described = await groups.describe(console.client, asked.needed("name"))
    rows = await groups.lag_of(console.client, described)
    shown, pages = paged(rows, asked.number("page", 1, 1, 1 << 31), PAGE_ROWS)
    values = {
        "group": described,
        "rows": shown,
        "pages": pages,
        "lag": sum(row.lag or 0 for row in rows),
        "members": described.members[:PAGE_ROWS],
    }
    return Page("group.html", {"title": f"Group {described.group}", **values})
