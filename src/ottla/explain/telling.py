"""Telling: stories, pictures and differences as tables and as JSON.

Who may call: `commands`. Invariants: both forms carry the same facts; nothing is cut.
"""

import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from ottla.admin.output import plural, print_table, say
from ottla.explain.again import Again
from ottla.explain.journals import Damage
from ottla.explain.lines import State
from ottla.explain.moments import shown
from ottla.explain.picture import Part, Picture
from ottla.explain.story import Chapter, Story
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition

NAMES_SHOWN = 10


class UnknownPartitionError(OttlaError):
    """No journal has a line about it."""


def unknown(tp: TopicPartition, picture: Picture) -> UnknownPartitionError:
    """Return an error that says what the journals do know."""
    topic = picture.topics.get(tp.topic)
    if topic is not None and topic.partitions:
        there = ", ".join(f"{tp.topic}-{n}" for n in sorted(topic.partitions)[:NAMES_SHOWN])
        return UnknownPartitionError(f"no journal knows {tp}; of this topic there are {there}")
    names = sorted(picture.topics)
    there = ", ".join(names[:NAMES_SHOWN]) + (", …" if len(names) > NAMES_SHOWN else "")
    return UnknownPartitionError(f"no journal knows {tp}; the topics are: {there or 'none'}")


# --- why --------------------------------------------------------------------------------------


def tell(story: Story) -> None:
    """Print the story as a table, the present last.

    A leader lost is only told by itself where no decision of the same event follows.
    """
    chapters = story.chapters
    following = [*chapters[1:], None]
    _print_chapters(
        story,
        [
            this
            for this, after in zip(chapters, following, strict=True)
            if this.what != "offline" or after is None or not this.same_cause(after)
        ],
    )


def at_moment(story: Story) -> None:
    """Print how it was, and the chapters that had made it so: leader and ISR."""
    chapters = [c for c in story.chapters if c.before != c.after]
    last_leader = next((c for c in reversed(chapters) if c.changes_leader), None)
    last = chapters[-1] if chapters else None
    made = [c for c in (last_leader, last) if c is not None]
    _print_chapters(story, list(dict.fromkeys(made)) or story.chapters[-1:])


def _print_chapters(story: Story, chapters: Sequence[Chapter]) -> None:
    rows = [
        (
            shown(c.ts),
            f"{c.controller}, epoch {c.epoch}",
            _change(_leader(c.before), _leader(c.after)),
            _change(_epoch(c.before), _epoch(c.after)),
            _change(_isr(c.before), _isr(c.after)),
            c.reason,
        )
        for c in chapters
    ]
    title = _title(story)
    print_table(("time", "controller", "leader", "epoch", "in sync", "why"), rows, title=title)


def _title(story: Story) -> str:
    picture, tp = story.picture, story.tp
    part = picture.part(tp)
    if part is None:
        return f"{tp}  does not exist any more"
    topic_id = picture.topics[tp.topic].id or "-"
    state = part.leadership
    replicas = ",".join(map(str, part.assignment.replicas))
    return (
        f"{tp}  topic id {topic_id}  replicas {replicas}  leader {_leader(state)}  "
        f"epoch {_epoch(state)}  in sync {_isr(state)}  {part.state}"
    )


def _change(before: str, after: str) -> str:
    return after if before == after else f"{before} → {after}" if before != "-" else after


def _leader(state: State | None) -> str:
    if state is None:
        return "-"
    return str(state.leader) if state.leader >= 0 else "none"


def _epoch(state: State | None) -> str:
    return "-" if state is None else str(state.leader_epoch)


def _isr(state: State | None) -> str:
    return "-" if state is None else ",".join(map(str, state.isr)) or "none"


def story_as_json(story: Story, damage: Damage, at: int | None = None) -> dict[str, Any]:
    """Return a story as JSON: the state at the end, and all chapters."""
    part = story.picture.part(story.tp)
    topic = story.picture.topics.get(story.tp.topic)
    return {
        "topic": story.tp.topic,
        "partition": story.tp.partition,
        "topic_id": topic.id if part is not None and topic is not None else None,
        "at": at,
        "now": None if part is None else _part_as_json(part),
        "chapters": [
            {
                "time": shown(c.ts),
                "ts": c.ts,
                "controller": c.controller,
                "controller_epoch": c.epoch,
                "cause": c.cause,
                "what": c.what,
                "before": msgspec.to_builtins(c.before),
                "after": msgspec.to_builtins(c.after),
                "because": c.because,
                "how": c.how,
                "election": c.election,
                "rule": c.rule,
                "rejected": [{"replica": r, "reason": why} for r, why in c.rejected],
                "outcome": c.outcome,
                "line": c.where,
            }
            for c in story.chapters
        ],
        **_damage_as_json(damage),
    }


# --- replay -----------------------------------------------------------------------------------


def tell_picture(picture: Picture) -> None:
    """Print the state of the cluster as a table."""
    rows = []
    for name in sorted(picture.topics):
        for number, part in sorted(picture.topics[name].partitions.items()):
            state = part.leadership
            rows.append(
                (
                    f"{name}-{number}",
                    _leader(state),
                    _epoch(state),
                    _isr(state),
                    ",".join(map(str, part.assignment.replicas)),
                    part.state + (" (being deleted)" if name in picture.deleting else ""),
                )
            )
    office = "" if picture.in_office else ", no longer in office"
    brokers = ", ".join(
        f"{b} (shutting down)" if b in picture.shutting_down else str(b)
        for b in sorted(picture.brokers)
    )
    title = (
        f"{shown(picture.ts)}  controller {picture.controller} of epoch {picture.epoch}{office}  "
        f"brokers {brokers or 'none'}"
    )
    print_table(("partition", "leader", "epoch", "in sync", "replicas", "state"), rows, title=title)


def picture_as_json(picture: Picture, damage: Damage) -> dict[str, Any]:
    """Return the state of the cluster as JSON."""
    return {
        "time": shown(picture.ts),
        "ts": picture.ts,
        "controller": picture.controller,
        "controller_epoch": picture.epoch,
        "in_office": picture.in_office,
        "brokers": sorted(picture.brokers),
        "shutting_down": sorted(picture.shutting_down),
        "deleting": list(picture.deleting),
        "topics": {
            name: {
                "id": topic.id,
                "partitions": {
                    str(number): _part_as_json(part)
                    for number, part in sorted(topic.partitions.items())
                },
            }
            for name, topic in sorted(picture.topics.items())
        },
        **_damage_as_json(damage),
    }


def _part_as_json(part: Part) -> dict[str, Any]:
    return {
        "replicas": part.assignment.replicas,
        "adding": part.assignment.adding,
        "removing": part.assignment.removing,
        "leadership": msgspec.to_builtins(part.leadership),
        "state": part.state,
    }


def tell_differences(again: Again) -> None:
    """Print what came out differently; how much was decided again goes to stderr."""
    for found in again.differences:
        when = f"{shown(found.ts)} epoch {found.epoch} cause {found.cause}"
        print_lines(
            f"{found.subject}  {found.decider}  {when}  ({found.where})",
            f"  - {found.journal}",
            f"  + {found.now}",
        )
    total = sum(again.checked.values())
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(again.checked.items()))
    outcome = plural(len(again.differences), "difference") if again.differences else "no difference"
    say(f"{plural(total, 'decision')} decided again ({kinds or 'nothing'}): {outcome}")
    for kind, count in sorted(again.unknown.items()):
        say(f"ottla: {plural(count, 'decision')} of kind {kind} not decided again: unknown here")


def print_lines(*lines: str) -> None:
    sys.stdout.write("".join(line + "\n" for line in lines))


def differences_as_json(again: Again, damage: Damage) -> dict[str, Any]:
    """Return what came out differently, and how much was looked at."""
    return {
        "decided_again": again.checked,
        "unknown": again.unknown,
        "differences": [
            {
                "subject": d.subject,
                "decider": d.decider,
                "time": shown(d.ts),
                "ts": d.ts,
                "controller_epoch": d.epoch,
                "cause": d.cause,
                "line": d.where,
                "journal": d.journal,
                "now": d.now,
            }
            for d in again.differences
        ],
        **_damage_as_json(damage),
    }


def _damage_as_json(damage: Damage) -> dict[str, Any]:
    return {
        "damaged_lines": damage.count,
        "damaged": [{"file": f, "line": n, "problem": p} for f, n, p in damage.named],
        "dropped_lines": damage.missing,
    }
