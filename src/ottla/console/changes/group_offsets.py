"""A group's offsets: where they would go, then moved there.

Invariants: exactly the offsets of the preview are committed; a group with members is refused, as by
`ottla groups reset-offsets`.
"""

from starlette.responses import Response

from ottla.admin.operations.input_files import parse_offsets
from ottla.admin.operations.typed_values import parse_moment
from ottla.client import group_resets, groups, topics
from ottla.client.group_resets import Move, Target, plan_reset
from ottla.console.asked import Asked, BadRequestError
from ottla.console.changes.preview import Preview, preview
from ottla.console.page import Page, redirect
from ottla.console.rendering import path
from ottla.console.state import Console
from ottla.model.ids import TopicPartition
from ottla.model.printable import plural

TARGETS = ("earliest", "latest", "offset", "shift", "time")
MOST_PLAN = 2_000_000


async def reset(console: Console, asked: Asked) -> Page | Response:
    """Return the preview of a reset; with `do`, commit what it showed."""
    group = asked.needed("name")
    back = path("group", name=group)
    if asked.has("do"):
        offsets = parse_offsets(asked.text("plan", most=MOST_PLAN).encode(), "the plan", group)
        moves = await plan_reset(console.client, group, None, Target(offsets=offsets))
        await group_resets.reset(console.client, group, moves)
        return redirect(back)
    partitions = await _partitions(console, group, asked.text("topic").strip())
    moves = await plan_reset(console.client, group, partitions, _target(asked))
    if not moves:
        raise BadRequestError(
            f"group {group} has no committed offsets; name a topic to set offsets for it"
        )
    return preview(
        Preview(
            f"Offsets of group {group}",
            ["Offsets outside a log are moved to its nearest end."],
            ("topic", "partition", "current", "requested", "new"),
            [(m.topic, m.partition, m.current, m.asked, m.new) for m in moves],
            "/group/reset",
            [("name", group), ("plan", "\n".join(map(_line, moves)))],
            f"Move {plural(len(moves), 'offset')}",
            back,
        )
    )


def _line(move: Move) -> str:
    return f"{move.topic},{move.partition},{move.new}"


async def _partitions(console: Console, group: str, topic: str) -> list[TopicPartition]:
    """Return the partitions of a topic, or, where none is named, those that have offsets."""
    if topic:
        facts = await topics.describe_topic(console.client, topic)
        return [TopicPartition(topic, p.partition) for p in facts.partitions]
    return sorted(await groups.committed_offsets(console.client, group))


def _target(asked: Asked) -> Target:
    to = asked.choice("to", TARGETS, "latest")
    if to == "offset":
        return Target(to_offset=asked.number("value", 0))
    if to == "shift":
        return Target(shift_by=asked.number("value", 0, -(1 << 62), 1 << 62))
    if to == "time":
        try:
            return Target(timestamp=parse_moment(asked.needed("value")))
        except ValueError as error:
            raise BadRequestError(f"value: {error}") from None
    return Target(earliest=True) if to == "earliest" else Target(latest=True)
