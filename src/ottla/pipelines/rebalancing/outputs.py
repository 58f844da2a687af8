"""Outputs: the folder with stages, ways back and elections; the table; JSON.

Invariants: the folder is there whole or not at all, and nothing that exists is overwritten; stages
are in the format of Kafka's `kafka-reassign-partitions.sh`, version 1, the elections in that of
`kafka-leader-election.sh`.
"""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ottla.model.durable_files import sync, sync_tree
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.printable import plural
from ottla.pipelines.paths import new_folder
from ottla.pipelines.rebalancing.deciding import Decision
from ottla.pipelines.rebalancing.problem import Problem
from ottla.pipelines.rebalancing.scoring import Score
from ottla.pipelines.rebalancing.staging import Change, busiest
from ottla.placement.plans import format_plan

SHOWN = 100


@dataclass(frozen=True, slots=True)
class Report:
    """What is reported of a decision; `throttle` in bytes/s, None: not known."""

    problem: Problem
    decision: Decision
    throttle: int | None
    folder: str | None

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
        made = self.decision
        leaders = {p.tp: p.leader for p in self.problem.partitions}
        names = _names(len(made.stages), "stage")
        return {
            "bytes_to_move": made.bytes_to_move,
            "least_bytes": made.least,
            "bytes_by_goal": made.copied,
            "replicas_to_move": sum(len(c.adding) for stage in made.stages for c in stage),
            "left_out": made.left_out,
            "elections": len(made.elect),
            "folder": self.folder,
            "stages": [
                _stage(name, stage, leaders, self.throttle)
                for name, stage in zip(names, made.stages, strict=True)
            ],
            "before": _score(made.before),
            "after": _score(made.after),
        }


def _score(score: Score) -> dict[str, Any]:
    return score._asdict() | {"brokers": [b._asdict() for b in score.brokers]}


def _stage(
    name: str,
    stage: Sequence[Change],
    leaders: Mapping[TopicPartition, int],
    throttle: int | None,
) -> dict[str, Any]:
    busy = busiest(stage, leaders)
    return {
        "file": name,
        "partitions": len(stage),
        "replicas": sum(len(c.adding) for c in stage),
        "bytes": sum(c.copied for c in stage),
        "busiest_broker_bytes": busy,
        "seconds": None if not throttle else round(busy / throttle, 1),
    }


def _names(count: int, what: str) -> list[str]:
    width = max(2, len(str(count)))
    return [f"{what}-{number:0{width}d}.json" for number in range(1, count + 1)]


def write(reported: Report) -> None:
    """Write the folder."""
    assert reported.folder is not None
    new_folder(reported.folder, "--plan")
    folder = Path(reported.folder)
    made = reported.decision
    texts = {"summary.json": json.dumps(reported.as_json(), indent=2) + "\n"}
    stages = zip(
        _names(len(made.stages), "stage"), _names(len(made.stages), "rollback"), made.stages,
        strict=True,
    )  # fmt: skip
    for name, back, stage in stages:
        texts[name] = format_plan({c.tp: c.after for c in stage}) + "\n"
        texts[back] = format_plan({c.tp: c.before for c in stage}) + "\n"
    if made.elect:
        named = [{"topic": tp.topic, "partition": tp.partition} for tp in sorted(made.elect)]
        texts["elections.json"] = json.dumps({"partitions": named}) + "\n"
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        for name, text in texts.items():
            (unfinished / name).write_text(text, encoding="utf-8")
        sync_tree(unfinished)
        unfinished.rename(folder)  # an empty folder of that name gives way
        sync(folder.parent)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise OttlaError(f"{error.filename or folder}: {error.strerror}") from error


def in_units(count: float) -> str:
    """Return bytes for a person: `1.5 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def print_table(reported: Report) -> None:
    """Print a line per broker, before and after, then what is to be done."""
    from rich.console import Console  # only where a table is drawn
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    table = Table(box=None, pad_edge=False)
    names = ("broker", "rack", "bytes", "after", "off", "after", "bytes/s", "after", "replicas",
             "after", "leaders", "after", "capacity")  # fmt: skip
    for place, name in enumerate(names):
        table.add_column(name, justify="left" if place == 1 else "right", overflow="fold")
    made = reported.decision
    kept = {b.id for b in reported.problem.brokers if not b.leaves}
    for b, a in zip(made.before.brokers[:SHOWN], made.after.brokers, strict=False):
        stays = b.broker in kept
        table.add_row(
            str(b.broker), b.rack or "-", in_units(b.bytes), in_units(a.bytes),
            f"{b.off:+.1%}" if stays else "-", f"{a.off:+.1%}" if stays else "-",
            in_units(b.rate), in_units(a.rate), f"{b.replicas:,}", f"{a.replicas:,}",
            f"{b.leaders:,}", f"{a.leaders:,}", in_units(b.capacity) if stays else "to be left",
        )  # fmt: skip
    console.print(table, markup=False)
    for line in _lines(reported):
        console.print(line, markup=False, soft_wrap=True)


def _lines(reported: Report) -> list[str]:
    made, before, after = reported.decision, reported.decision.before, reported.decision.after
    lines = []
    if len(before.brokers) > SHOWN:
        lines.append(
            f"the first {SHOWN} of {plural(len(before.brokers), 'broker')}; --output json has all"
        )
    lines += [
        f"{what}: {old} before, {new} after"
        for what, old, new in (
            ("replicas that have to leave their broker", before.to_leave, after.to_leave),
            ("partitions on too few racks", before.racks, after.racks),
            ("brokers over a capacity", before.over_capacity, after.over_capacity),
            ("bytes off the even share, at most", f"{before.bytes_off:.1%}",
             f"{after.bytes_off:.1%}"),
            ("leaders, most less fewest", before.leaders_off, after.leaders_off),
            ("topics with too many replicas on a broker", before.topics_off, after.topics_off),
        )
    ]  # fmt: skip
    why = ", ".join(f"{in_units(n)} for {goal}" for goal, n in made.copied.items() if n)
    lines += [
        f"to move: {in_units(made.bytes_to_move)}{f' ({why})' if why else ''}",
        f"all brokers in their bands takes {in_units(made.least)} at least, by any plan",
    ]
    if after.outside:
        lines.append(
            f"{in_units(after.outside)} stay outside the bands: nothing was found that brings them "
            "in, within max_bytes and at a fair price"
        )
    if made.left_out:
        lines.append(f"{made.left_out} moves are left out: no broker has room for both copies")
    if not made.stages and not made.elect:
        return [*lines, "nothing to do"]
    whole = reported.as_json()["stages"]
    for stage in whole[:SHOWN]:
        seconds = "" if stage["seconds"] is None else f", {stage['seconds']:,} s at least"
        what = f"{plural(stage['replicas'], 'replica')}, {in_units(stage['bytes'])}{seconds}"
        if not stage["replicas"]:
            what = "the order of replicas only"
        lines.append(f"{stage['file']}: {plural(stage['partitions'], 'partition')}, {what}")
    if len(whole) > SHOWN:
        lines.append(f"… and {plural(len(whole) - SHOWN, 'more stage')}")
    if made.elect:
        lines.append(
            f"then {plural(len(made.elect), 'preferred election')}: `ottla elect preferred "
            "--all`, or "
            "elections.json with kafka-leader-election.sh"
        )
    if reported.folder is None:
        lines.append("nothing was written; --plan FOLDER writes the stages")
    return lines
