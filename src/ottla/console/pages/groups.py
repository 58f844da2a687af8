"""Groups: the list with lag, and one group with its members, its partitions and its lag over time.

Invariants: lag in the list is the watcher's, a few seconds old; that of one group is asked for when
its page is, and is a point of its history, too.
"""

import time
from collections.abc import Callable

from ottla.admin.top.group_progress import Progress, progress_of
from ottla.client import groups
from ottla.console.asked import Asked
from ottla.console.lag_history import KEPT_S, RATE_S, Trend, draw, trend_of
from ottla.console.page import Page
from ottla.console.rendering import paged
from ottla.console.state import Console

PAGE_ROWS = 100


async def listed(console: Console, asked: Asked) -> Page:
    """Return a page of the list."""
    look = await console.watcher.look()
    wanted = asked.text("q")
    problems: list[str] = []
    every = await groups.list_groups(console.client, problems)
    found = [g for g in every if wanted in g.group]
    shown, pages = paged(found, asked.number("page", 1, 1, 1 << 31), PAGE_ROWS)
    trends = {g.group: _trend(console, g.group) for g in shown}
    seen = {"known": look.groups or {}, "trends": trends}
    values = {"rows": shown, "pages": pages, "q": wanted, "problems": problems, **seen}
    return Page("groups.html", {"title": "Groups", **values})


async def one(console: Console, asked: Asked) -> Page:
    """Return one group."""
    found = await parts(console, asked)
    values = {name: value for part in found.values() for name, value in part.values.items()}
    return Page("group.html", {"title": f"Group {values['group'].group}", **values})


async def parts(console: Console, asked: Asked) -> dict[str, Page]:
    """Return what of one group's page is updated live."""
    name = asked.needed("name")
    described = await groups.describe(console.client, name)
    at_s = time.monotonic()
    rows = await groups.lag_of(console.client, described, [])
    progress = progress_of(rows, at_s)
    if progress is not None:
        console.watcher.lags.add(name, progress)
    shown, pages = paged(rows, asked.number("page", 1, 1, 1 << 31), PAGE_ROWS)
    facts = {
        "group": described,
        "lag": None if progress is None else progress.lag,
        "trend": _trend(console, name),
    }
    members = {"group": described, "members": described.members[:PAGE_ROWS]}
    return {
        "facts": Page("part_group.html", facts),
        "history": Page("part_lag.html", _history(console, name, progress)),
        "partitions": Page("part_lags.html", {"rows": shown, "pages": pages}),
        "members": Page("part_members.html", members),
    }


def _trend(console: Console, name: str) -> Trend | None:
    return trend_of(console.watcher.lags.points(name, time.monotonic() - RATE_S))


def _history(console: Console, name: str, progress: Progress | None) -> dict[str, object]:
    """Return the picture, and how many topics the group has now."""
    now_s = time.monotonic()
    lags = console.watcher.lags
    picture = draw(lags.points(name, now_s - KEPT_S), lags.topics(name), now_s, _clock(now_s))
    return {"picture": picture, "topics": 0 if progress is None else len(progress.topics)}


def _clock(now_s: float) -> Callable[[float], str]:
    """Return what writes a moment of the monotonic clock as people read it."""
    wall_s = time.time() - now_s

    def clock(at_s: float) -> str:
        return time.strftime("%H:%M:%S", time.localtime(round(wall_s + at_s)))

    return clock
