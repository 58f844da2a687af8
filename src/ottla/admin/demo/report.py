"""What the demo tells: milestones and progress bars while it runs, one table at the end.

Invariants: without a terminal there are no bars, only lines; the table says of every claim whether
it held, and the demo holds only if all of them did.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from ottla.admin.demo.verifying import Landed
from ottla.admin.demo.watching import Move
from ottla.cli.output import megabytes
from ottla.model.errors import StartupError

try:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Table
except ModuleNotFoundError as error:
    raise StartupError(
        "the demo needs rich, not installed here: pip install 'ottla[all]', or "
        "'ottla[demo]' for --no-spark"
    ) from error


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
    """Prints milestones with the time since the start, and draws bars on a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._progress = Progress(
            TextColumn("  {task.description:<28}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def say(self, line: str) -> None:
        since = time.monotonic() - self._started
        self._console.print(f"[dim]{since:6.1f} s[/dim]  {line}", highlight=False)

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator["Bar"]:
        task = self._progress.add_task(what, total=total)
        yield Bar(self._progress, task)


class Bar:
    """One progress bar."""

    def __init__(self, progress: Progress, task: Any) -> None:
        self._progress = progress
        self._task = task

    def __call__(self, done: int) -> None:
        self._progress.update(self._task, completed=done)


def _row(table: Table, what: str, value: str, *, good: bool | None = None) -> None:
    sign = "" if good is None else "[green]held[/green]" if good else "[bold red]FAILED[/bold red]"
    table.add_row(what, value, sign)


def print_report(console: Console, report: Report) -> None:
    """Print the closing table, the moves of leaders, and what went wrong."""
    table = Table(title="Ottla demo", title_justify="left")
    table.add_column("what")
    table.add_column("measured", justify="right")
    table.add_column("")
    acked = report.acknowledged
    _row(table, "three brokers and ZooKeeper up in", f"{report.start_s:.1f} s")
    _row(
        table,
        "records acknowledged (acks=all)",
        f"{acked:,} of {report.total:,}",
        good=acked == report.total,
    )
    _row(table, "read back by another client", f"{report.read:,}", good=report.read >= acked)
    if report.spark_skipped:
        _row(table, "landed in Delta by Spark", "skipped (--no-spark)")
    else:
        killed = f"after {report.landed_before_kill:,} flights"
        _row(table, "kill -9 of Spark's driver", killed)
        counted = report.landed
        rows, flights = (counted.rows, counted.distinct) if counted else (0, 0)
        exact = rows == flights == report.read
        _row(table, "landed in Delta, counted by DuckDB", f"{flights:,}", good=exact)
    for outage in report.outages:
        table.add_section()
        _row(table, f"kill -9 broker {outage.broker}", outage.why)
        _row(table, "  partitions it led", str(outage.led))
        _row(table, "  until all were led again", f"{outage.leaderless_s:.2f} s")
        _row(table, "  longest wait for an acknowledgement", f"{outage.longest_silence_s:.2f} s")
        _row(
            table,
            "  acknowledged while it was down",
            f"{outage.acknowledged:,}",
            good=outage.acknowledged > 0,
        )
        _row(table, "  verified while it was down", f"{outage.read_while_down:,}")
        _row(table, "  back and in sync again after", f"{outage.whole_again_s:.1f} s")
    table.add_section()
    for broker, peak in sorted(report.memory.items()):
        _row(table, f"memory of broker {broker}, at most", megabytes(peak))
    console.print(table)
    if report.moves:
        console.print(_moves(report))
    if report.landed:
        console.print(_delays(report.landed))
    for what, told in (("Replicas", report.files), ("Leaders over time", report.leaders)):
        if told:
            console.print(f"{what}: {told}", highlight=False, markup=False, soft_wrap=True)
    for line in report.wrong:
        console.print(f"[bold red]FAILED[/bold red] {line}", highlight=False)


def _moves(report: Report) -> Table:
    table = Table(title="Leader moves", title_justify="left")
    for column in ("partition", "from", "to", "epoch", "without leader", "cause"):
        table.add_column(column, justify="left" if column == "cause" else "right")
    for move in report.moves:
        table.add_row(
            f"{report.topic}-{move.partition}",
            str(move.before),
            str(move.after),
            str(move.epoch),
            f"{move.seconds:.2f} s" if move.seconds else "-",
            move.cause,
        )
    return table


def _delays(landed: Landed) -> Table:
    table = Table(title="Delays per airline (DuckDB over the Delta table)", title_justify="left")
    names = ("airline", "flights", "dep. delay", "arr. delay", "late", "cancelled")
    for column in names:
        table.add_column(column, justify="left" if column == "airline" else "right")
    for airline, flights, departure, arrival, late, cancelled in landed.delays:
        table.add_row(
            airline,
            f"{flights:,}",
            _minutes(departure),
            _minutes(arrival),
            f"{late:.1f} %",
            f"{cancelled:,}",
        )
    return table


def _minutes(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f} min"
