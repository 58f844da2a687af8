"""What the demo says while it runs, and the tables at its end."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ottla.admin.demo.verifying import Landed
from ottla.admin.demo.watching import Move
from ottla.cli.output import megabytes, print_line, print_table
from ottla.cli.progress import StatusLine
from ottla.cli.tables import bad, good

Bar = Callable[[int], None]
"""Hears how much of a step is done."""


@dataclass(slots=True)
class Outage:
    """One kill and what came of it. Moments are of `time.monotonic`."""

    broker: int
    why: str
    led: int
    killed_at: float
    leaderless_s: float = 0.0
    restarted_at: float = 0.0
    whole_again_s: float = 0.0
    acknowledged: int = 0
    longest_silence_s: float = 0.0
    read_while_down: int = 0


@dataclass(slots=True)
class Report:
    """Everything the closing table shows. `wrong` is what did not hold."""

    total: int
    topic: str
    acknowledged: int = 0
    not_acknowledged: int = 0
    produce_s: float = 0.0
    read: int = 0
    read_s: float = 0.0
    landed: Landed | None = None
    landed_before_kill: int = 0
    spark_skipped: bool = False
    outages: list[Outage] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    memory: dict[int, int] = field(default_factory=dict)
    start_s: float = 0.0
    acks_file: str = ""
    files: str = ""
    """What comparing the brokers' files came to, in one line."""
    leaders: str = ""
    """The page that shows who led when."""
    wrong: list[str] = field(default_factory=list)

    @property
    def held(self) -> bool:
        return not self.wrong


class Stage:
    """Prints milestones with the time since the start and, on a terminal, how far a step is."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._line = StatusLine()

    def say(self, line: str) -> None:
        self._line.clear()
        print_line(f"{time.monotonic() - self._began_s:6.1f} s  {line}")
        sys.stdout.flush()

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator[Bar]:
        yield lambda done: self._line.write(f"  {what}: {done:,} of {total:,}")
        self._line.clear()


def print_report(report: Report) -> None:
    """Print the closing table, the moves of leaders, and what went wrong."""
    print_table(("what", "measured", ""), list(_measured(report)), title="Ottla demo")
    if report.moves:
        moves = [
            (
                f"{report.topic}-{m.partition}",
                m.before,
                m.after,
                m.epoch,
                f"{m.seconds:.2f} s" if m.seconds else "-",
                m.cause,
            )
            for m in report.moves
        ]
        heads = ("partition", "from", "to", "epoch", "without leader", "cause")
        print_table(heads, moves, title="Leader moves")
    if report.landed:
        delays = [
            (
                airline,
                f"{flights:,}",
                _minutes(departure),
                _minutes(arrival),
                f"{late:.1f} %",
                f"{cancelled:,}",
            )
            for airline, flights, departure, arrival, late, cancelled in report.landed.delays
        ]
        heads = ("airline", "flights", "dep. delay", "arr. delay", "late", "cancelled")
        print_table(heads, delays, title="Delays per airline (DuckDB over the Delta table)")
    for what, told in (("Replicas", report.files), ("Leaders over time", report.leaders)):
        if told:
            print_line(f"{what}: {told}")
    for line in report.wrong:
        print_line(f"FAILED {line}")


def _measured(report: Report) -> Iterator[tuple[str, str, object]]:
    def held(*, as_wanted: bool) -> object:
        return good("held") if as_wanted else bad("FAILED")

    acked = report.acknowledged
    yield "three brokers and ZooKeeper up in", f"{report.start_s:.1f} s", ""
    all_acked = held(as_wanted=acked == report.total)
    yield "records acknowledged (acks=all)", f"{acked:,} of {report.total:,}", all_acked
    yield "read back by another client", f"{report.read:,}", held(as_wanted=report.read >= acked)
    if report.spark_skipped:
        yield "landed in Delta by Spark", "skipped (--no-spark)", ""
    else:
        yield "kill -9 of Spark's driver", f"after {report.landed_before_kill:,} flights", ""
        counted = report.landed
        rows, flights = (counted.rows, counted.distinct) if counted else (0, 0)
        exact = held(as_wanted=rows == flights == report.read)
        yield "landed in Delta, counted by DuckDB", f"{flights:,}", exact
    for outage in report.outages:
        yield f"kill -9 broker {outage.broker}", outage.why, ""
        yield "  partitions it led", str(outage.led), ""
        yield "  until all were led again", f"{outage.leaderless_s:.2f} s", ""
        yield "  longest wait for an acknowledgement", f"{outage.longest_silence_s:.2f} s", ""
        some = held(as_wanted=outage.acknowledged > 0)
        yield "  acknowledged while it was down", f"{outage.acknowledged:,}", some
        yield "  verified while it was down", f"{outage.read_while_down:,}", ""
        yield "  back and in sync again after", f"{outage.whole_again_s:.1f} s", ""
    for broker, peak in sorted(report.memory.items()):
        yield f"memory of broker {broker}, at most", megabytes(peak), ""


def _minutes(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f} min"
