"""Why a partition has the leader and ISR it has: every decision with its rule, as text and picture.

Invariants: only the journals of the cluster on this machine are read, in a thread, one question at
a time; the newest changes are drawn, and what is left out is said.
"""

import time
from dataclasses import replace
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from ottla.console.asked import Asked, BadRequestError
from ottla.console.page import Page, problem
from ottla.console.state import Console
from ottla.explain import commands, journals, timeline_html
from ottla.explain.history import PartitionHistory
from ottla.explain.rendering import UnknownPartitionError, unknown_partition
from ottla.explain.results import History, history_of
from ottla.explain.spans import Timeline
from ottla.explain.timeline_command import session_timeouts
from ottla.local.cluster_dir import ClusterDir
from ottla.model.errors import OttlaError
from ottla.model.html import Html, joined
from ottla.model.ids import TopicPartition
from ottla.model.journal_schema import partition_of

MOST_ENTRIES = 200
MOST_DRAWN = 2000
NS_PER_MS = 1_000_000
NO_JOURNALS = (
    "this console only knows the cluster's address, and the controllers' journals are on the "
    "brokers' machines; start it with --dir, or run `ottla why` there"
)


class _Explained(NamedTuple):
    history: History
    picture: Html
    left_out: int


async def page(console: Console, asked: Asked) -> Page:
    """Return the story of the partition that was named; only the form where none was."""
    name = asked.text("partition").strip()
    values: dict[str, object] = {"name": name, "found": None, "entries": (), "more": 0}
    if name:
        try:
            tp = partition_of(name)
        except ValueError as error:
            raise BadRequestError(str(error)) from None
        if console.folder is None:
            raise OttlaError(NO_JOURNALS)
        try:
            found = await console.alone(_explain, console.folder, tp)
        except (UnknownPartitionError, journals.NoJournalError) as error:
            return problem(404, "Nothing recorded", error)
        entries = list(enumerate(found.history.entries))[::-1]
        values |= {
            "found": found,
            "entries": entries[:MOST_ENTRIES],
            "more": max(0, len(entries) - MOST_ENTRIES),
        }
    return Page("why.html", {"title": f"Why {name}" if name else "Why", **values})


def _explain(folder: ClusterDir, tp: TopicPartition) -> _Explained:
    history, timeline = PartitionHistory(tp), Timeline()
    places: list[int] = []
    """For each change that is drawn: how many decisions there were with the line that made it."""

    def take(entry: Any) -> None:
        history.take(entry)
        timeline.take(entry)
        while len(timeline.changes.get(tp, ())) > len(places):
            places.append(len(history.entries))

    files = journals.find([folder.path])
    damage = commands.take_all(files, None, take, wanted=journals.about(tp))
    if not history.seen:
        of_all = PartitionHistory(tp)  # which topics there are, other lines tell
        commands.take_all(files, None, of_all.take)
        raise unknown_partition(tp, of_all.cluster)
    drawn = timeline.about(tp.topic, tp.partition)
    cluster = folder.load()
    if cluster is not None and any(broker.running for broker in cluster.brokers):
        # What the last line says holds until now; where no broker runs, it is not known until when.
        drawn = replace(drawn, end=max(drawn.end, time.time_ns() // NS_PER_MS))
    changes = drawn.changes.get(tp, [])
    left_out = max(0, len(changes) - MOST_DRAWN)
    if left_out:
        drawn = drawn.since(changes[-MOST_DRAWN].ts)
    links = {tp: [_link(place - 1, len(history.entries)) for place in places]}
    picture = joined(timeline_html.picture(drawn, session_timeouts(folder.path), links))
    return _Explained(history_of(history, damage), picture, left_out)


def _link(place: int, count: int) -> str:
    """Return where a decision is on the page, empty if it is left out there."""
    return f"#d{place}" if max(0, count - MOST_ENTRIES) <= place else ""


async def style(_request: Request) -> Response:
    """Return the style of the picture."""
    return Response(timeline_html.STYLE, media_type="text/css")


async def script(_request: Request) -> Response:
    """Return the script of the picture."""
    return Response(timeline_html.script(), media_type="text/javascript")
