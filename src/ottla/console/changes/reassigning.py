"""Replicas moved to other brokers: what goes on, a plan with its bytes, and the end of both.

Invariants: plans are those of `ottla reassign plan`; the plan of the preview is what is begun, and
the way back is on its page before anything changes.
"""

import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from starlette.responses import Response

from ottla.admin.operations import drain
from ottla.client import left_over_throttles, proposals, reassignments
from ottla.client.client import Client
from ottla.client.left_over_throttles import Forgotten
from ottla.console.asked import Asked, BadRequestError
from ottla.console.changes.preview import Preview, preview
from ottla.console.page import Page, redirect
from ottla.console.rendering import ids, number, path, size
from ottla.console.state import Console
from ottla.model.ids import TopicPartition
from ottla.model.printable import plural
from ottla.placement.plans import MAX_PLAN_BYTES, Assignment, format_plan, parse_brokers, parse_plan

PLAN = "the plan"
BACK = "/reassign"
MOST_THROTTLE = (1 << 53) - 1
MOST_FACTOR = 1000
MOST_MOVES = 500
LEFT_OVER_S = 10.0


class _Plan(NamedTuple):
    current: Assignment
    wanted: Assignment
    copies: int


async def page(console: Console, asked: Asked) -> Page:
    """Return what is being moved, and the form of a plan."""
    console.left_over.clear()
    found = await parts(console, asked)
    values = {name: value for part in found.values() for name, value in part.values.items()}
    look = await console.watcher.look()
    return Page(
        "reassign.html", {"title": "Reassignments", **values, "brokers": sorted(look.brokers)}
    )


async def parts(console: Console, _asked: Asked) -> dict[str, Page]:
    """Return what is updated live; what changes seldom apart, so that a button stays."""
    look = await console.watcher.look()
    moves = await reassignments.in_progress(console.client)
    topics = {tp.topic for tp in look.partitions}
    left_over = () if moves else await _left_over(console, topics)
    values = {
        "moves": list(moves.items())[:MOST_MOVES],
        "count": len(moves),
        "estimate": look.estimate if moves else None,
    }
    return {
        "moves": Page("part_moves.html", values),
        "cancel": Page("part_cancel.html", {"moving": bool(moves), "left_over": left_over}),
    }


async def _left_over(console: Console, topics: set[str]) -> Sequence[Forgotten]:
    """Return the throttles that are left over, a few seconds old: all brokers are asked."""
    now_s = time.monotonic()
    seen = console.left_over
    if not seen or now_s - seen[0][0] > LEFT_OVER_S:
        found = await left_over_throttles.forgotten(console.client, names=topics)
        seen[:] = [(now_s, found)]
    return seen[0][1]


async def plan(console: Console, asked: Asked) -> Page:
    """Return the preview of a plan."""
    throttle = asked.number("throttle", 0, 0, MOST_THROTTLE)
    found = await _proposed(console.client, asked)
    changed = {tp: to for tp, to in found.wanted.items() if to != found.current.get(tp)}
    if not changed:
        raise BadRequestError("nothing to move: the replicas are already balanced")
    live = await reassignments.racks(console.client)
    sizes = await proposals.sizes(console.client, live)
    copied, most = _bytes(found.current, changed, sizes)
    moved = plural(len(changed), "partition")
    lines = [f"{plural(found.copies, 'replica')} to copy, {size(copied)}; {moved} changed."]
    if throttle:
        lines.append(
            f"At {number(throttle)} bytes/s per broker, this takes at least "
            f"{most / throttle:,.0f} s."
        )
    prepared = await reassignments.prepare(
        console.client, changed, PLAN, additional=False, throttle=throttle or None
    )
    return preview(
        Preview(
            "Plan",
            lines,
            ("partition", "current replicas", "new replicas", "bytes"),
            [
                (str(tp), ids(found.current.get(tp, ())), ids(to), size(sizes.get(tp)))
                for tp, to in sorted(changed.items())
            ],
            "/reassign/execute",
            [("plan", format_plan(changed)), ("throttle", str(throttle or ""))],
            f"Move {moved}",
            BACK,
            ("Plan to roll back with; save it", format_plan(prepared.rollback)),
        )
    )


def _bytes(
    current: Assignment, changed: Assignment, sizes: dict[TopicPartition, int]
) -> tuple[int, int]:
    """Return the bytes to copy in all, and the most that one broker has to take."""
    taken: Counter[int] = Counter()
    for tp, replicas in changed.items():
        for broker in set(replicas) - set(current.get(tp, ())):
            taken[broker] += sizes.get(tp, 0)
    return sum(taken.values()), max(taken.values(), default=0)


async def _proposed(client: Client, asked: Asked) -> _Plan:
    drained = asked.number("drain", -1, 0, (1 << 31) - 1)
    if drained >= 0:
        current, wanted = await drain.plan(client, drained)
        return _Plan(current, wanted, len(wanted))
    named = [name.strip() for name in asked.text("topics", most=100_000).split(",")]
    names = [name for name in dict.fromkeys(named) if name]
    brokers = asked.text("brokers").strip()
    try:
        chosen = parse_brokers(brokers) if brokers else ()
    except ValueError as error:
        raise BadRequestError(f"brokers: {error}") from None
    factor = asked.number("factor", 0, 1, MOST_FACTOR) or None
    current, found = await proposals.propose(client, names or None, chosen, factor)
    return _Plan(current, found.assignment, found.copies)


async def execute(console: Console, asked: Asked) -> Response:
    """Begin the plan of a preview."""
    if not asked.has("do"):
        raise BadRequestError("preview a plan first")
    throttle = asked.number("throttle", 0, 0, MOST_THROTTLE) or None
    wanted = parse_plan(asked.text("plan", most=MAX_PLAN_BYTES).encode(), PLAN)
    prepared = await reassignments.prepare(
        console.client, wanted, PLAN, additional=False, throttle=throttle
    )
    await reassignments.execute(console.client, prepared, throttle)
    return redirect(BACK)


async def cancel(console: Console, asked: Asked) -> Page | Response:
    """Return what would be cancelled; with `do`, cancel it."""
    if asked.has("do"):
        wanted = parse_plan(asked.text("plan", most=MAX_PLAN_BYTES).encode(), PLAN)
        await reassignments.cancel(console.client, wanted.keys())
        return redirect(BACK)
    moves = await reassignments.in_progress(console.client)
    if not moves:
        raise BadRequestError("no reassignment is in progress")
    return preview(
        Preview(
            "Cancel reassignments",
            ["New replicas are dropped; the original replicas stay."],
            ("partition", "adding", "removing"),
            [(str(tp), ids(m.adding), ids(m.removing)) for tp, m in moves.items()],
            "/reassign/cancel",
            [("plan", format_plan({tp: m.replicas for tp, m in moves.items()}))],
            f"Cancel {plural(len(moves), 'move')}",
            BACK,
        )
    )


async def remove_throttles(console: Console, asked: Asked) -> Page | Response:
    """Return the throttles that are left over; with `do`, remove those of them that were shown."""
    found = await left_over_throttles.forgotten(console.client)
    if asked.has("do"):
        shown = asked.text("throttles", most=MAX_PLAN_BYTES).splitlines()
        those = [throttle for throttle in found if _line(throttle) in shown]
        await left_over_throttles.remove(console.client, those)
        return redirect(BACK)
    if not found:
        raise BadRequestError("no throttle was left behind")
    return preview(
        Preview(
            "Throttles left behind",
            ["No reassignment is in progress; the throttles only slow down replicas."],
            ("of", "name", "settings"),
            [(t.kind, t.name, _settings(t)) for t in found],
            "/reassign/throttles",
            [("throttles", "\n".join(map(_line, found)))],
            "Remove throttles",
            path("reassign"),
        )
    )


def _settings(throttle: Forgotten) -> str:
    return ", ".join(f"{key}={value}" for key, value in throttle.settings.items())


def _line(throttle: Forgotten) -> str:
    return f"{throttle.kind} {throttle.name} {_settings(throttle)}"
