"""The screen of `ottla top`: brokers, topics, partitions, groups and what happens, with Textual.

Invariants: what is shown is `changes`'; names are data, never markup; one look at a time, and a
slow cluster never blocks a key.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import DataTable, Footer, RichLog, Static

from ottla.admin.top import partition_text
from ottla.admin.top.changes import BrokerRow, Changes, Look
from ottla.cli.progress import described
from ottla.model.ids import NO_LEADER, TopicPartition
from ottla.model.printable import plural, printable

PADDING = 2
"""Blanks that a table puts around each cell."""
LEAST_NAME = 16
SCROLLBAR = 2
VIEWS = ("brokers", "topics", "partitions", "groups")
HEADS = {
    "brokers": ("broker", "state", "leads", "replicas", "behind", "rec/s", "req/s", "p99 ms",
                "idle", "address", "rack"),
    "topics": ("topic", "partitions", "no leader", "under-repl.", "moving", "rec/s", "records"),
    "partitions": ("partition", "leader", "epoch", "replicas", "in sync", "rec/s", "end"),
    "groups": ("group", "state", "members", "lag"),
}  # fmt: skip


class Top(App[None]):
    """The application. `look` asks the cluster, `explain` tells a partition's history.

    Where that has no journals (None), what was seen here is shown.
    """

    CSS = """
    #summary { height: auto; max-height: 5; padding: 0 1; }
    #view { height: 1fr; }
    #why { height: 1fr; display: none; }
    #events { height: 7; border-top: solid $primary; }
    """
    ENABLE_COMMAND_PALETTE = False  # its key would take the place of the last of ours
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b", "view('brokers')", "brokers"),
        Binding("t", "view('topics')", "topics"),
        Binding("p", "view('partitions')", "partitions"),
        Binding("g", "view('groups')", "groups"),
        Binding("enter", "open", "open", priority=True),
        Binding("escape", "close", "back"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(
        self,
        look: Callable[[], Awaitable[Look]],
        interval_s: float,
        explain: Callable[[TopicPartition], Awaitable[str | None]],
    ) -> None:
        super().__init__()
        self._look = look
        self._interval_s = interval_s
        self._explain = explain
        self._changes = Changes()
        self._view = "brokers"
        self._topic: str | None = None
        self._explained: TopicPartition | None = None

    def compose(self) -> ComposeResult:
        yield Static("asking the cluster …", id="summary", markup=False)
        yield DataTable[Text](id="view", cursor_type="row")
        with VerticalScroll(id="why"):
            yield Static("", id="explained", markup=False)
        yield RichLog(id="events", max_lines=1000, markup=False, wrap=True)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#view").focus()
        self.run_worker(self._looks(), exclusive=True)

    async def _looks(self) -> None:
        while True:
            look = await self._look()
            if not self.is_running:
                return  # who quits removes the widgets before the workers are cancelled
            for line in self._changes.take(look):
                self.query_one(RichLog).write(printable(line))
            self._draw()
            await asyncio.sleep(self._interval_s)

    # --- keys -------------------------------------------------------------------------------

    def action_view(self, name: str) -> None:
        """Show another list."""
        self._view, self._topic, self._explained = name, None, None
        self._draw(anew=True)

    def action_open(self) -> None:
        """Open what the cursor is on: a topic's partitions, a partition's history."""
        table = self.query_one(DataTable)
        if self._explained is not None or not table.row_count:
            return
        key = table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value or ""
        if self._view == "topics":
            self._view, self._topic = "partitions", key
            self._draw(anew=True)
        elif self._view == "partitions":
            topic, _, number = key.rpartition("-")
            self._explained = TopicPartition(topic, int(number))
            self.query_one("#explained", Static).update(f"{key}: reading the journals …")
            self._draw(anew=True)
            self.run_worker(self._tell(self._explained))

    def action_close(self) -> None:
        """Go back to where the list came from."""
        if self._explained is not None:
            self._explained = None
        elif self._topic is not None:
            self._view, self._topic = "topics", None
        self._draw(anew=True)

    async def _tell(self, tp: TopicPartition) -> None:
        text = await self._explain(tp)
        if text is None:
            look = self._changes.look
            text = partition_text.seen(
                tp, None if look is None else look.partitions.get(tp), self._changes.seen(tp)
            )
        if self._explained == tp and self.is_running:
            lines = "\n".join(printable(line) for line in text.split("\n"))
            self.query_one("#explained", Static).update(lines)

    # --- drawing ----------------------------------------------------------------------------

    def _draw(self, *, anew: bool = False) -> None:
        look = self._changes.look
        if look is None:
            return
        self.query_one("#summary", Static).update(self._summary(look))
        table = self.query_one(DataTable)
        table.display = self._explained is None
        self.query_one("#why").display = self._explained is not None
        listed = [(key, [_cell(cell) for cell in cells]) for key, cells in self._rows(look)]
        heads, rows = fitted(HEADS[self._view], listed, self.size.width - SCROLLBAR)
        place = 0 if anew else table.cursor_row
        table.clear(columns=True)
        table.add_columns(*heads)
        for key, cells in rows:
            table.add_row(*cells, key=key)
        if rows:
            table.move_cursor(row=min(place, len(rows) - 1))
        if anew and self._explained is None:
            table.focus()

    def _summary(self, look: Look) -> Text:
        facts = look.partitions.values()
        without = sum(p.leader == NO_LEADER for p in facts)
        under = sum(len(p.isr) < len(p.replicas) for p in facts)
        controller = "none" if look.controller < 0 else str(look.controller)
        brokers = plural(len(look.brokers), "broker")
        partitions = plural(len(look.partitions), "partition")
        text = Text(
            f"{look.clock}  {brokers}, controller {controller}, cluster {printable(look.cluster)}\n"
            f"{partitions}: "
        )
        text.append(f"{without:,} without leader", "bold red" if without else "")
        text.append(", ")
        text.append(f"{under:,} under-replicated", "yellow" if under else "")
        if look.moves:
            known = "" if look.estimate is None else f": {described(look.estimate)}"
            text.append(f"\n{len(look.moves):,} moving{known}")
        if look.problem:
            text.append(f"\n{printable(look.problem)}", "bold red")
        return text

    def _rows(self, look: Look) -> list[tuple[str, tuple[object, ...]]]:
        if self._view == "brokers":
            return [(str(row.broker), _of_broker(row)) for row in self._changes.brokers()]
        if self._view == "topics":
            return [
                (row.topic, (*row[:5], _rate(row.written), row.end))
                for row in self._changes.topics()
            ]
        if self._view == "groups":
            return [(name, (name, *group)) for name, group in sorted((look.groups or {}).items())]
        return [
            (
                str(tp),
                (
                    str(tp), "none" if p.leader == NO_LEADER else p.leader, p.leader_epoch,
                    ",".join(map(str, p.replicas)), ",".join(map(str, p.isr)),
                    _rate(self._changes.rate(tp)), p.end,
                ),
            )
            for tp, p in sorted(look.partitions.items())
            if self._topic in (None, tp.topic)
        ]  # fmt: skip


def fitted(
    heads: Sequence[str], rows: Sequence[tuple[str, Sequence[Text]]], width: int
) -> tuple[Sequence[str], Sequence[tuple[str, Sequence[Text]]]]:
    """Return a list as a screen of this width shows it whole.

    Names, which come first, are shortened in their middle; after that the last columns go.
    """
    widths = [
        max([len(head), *(cells[i].cell_len for _, cells in rows)]) + PADDING
        for i, head in enumerate(heads)
    ]
    excess = sum(widths) - width
    if excess <= 0:
        return heads, rows
    name = max(LEAST_NAME + PADDING, widths[0] - excess)
    if name < widths[0]:
        rows = [(key, [_shortened(c[0], name - PADDING), *c[1:]]) for key, c in rows]
        widths[0] = name
    kept = len(widths)
    while kept > 1 and sum(widths[:kept]) > width:
        kept -= 1
    return heads[:kept], [(key, cells[:kept]) for key, cells in rows]


def _shortened(text: Text, length: int) -> Text:
    if text.cell_len <= length:
        return text
    half = (length - 1) // 2
    return Text(f"{text.plain[: length - 1 - half]}…{text.plain[-half:]}", text.style)


def _of_broker(row: BrokerRow) -> tuple[object, ...]:
    """Return a broker's cells; those that count stand where a terminal of 80 columns shows them."""
    facts = row.facts
    state = "dead" if facts is None else "controller" if row.controller else "up"
    counts = (row.broker, state, row.leaders, row.replicas, row.out_of_sync, _rate(row.written))
    if facts is None:
        return (*counts, None, None, None, None, None)
    idle = None if facts.idle is None else f"{facts.idle:.0%}"
    return (*counts, _rate(facts.requests), _rate(facts.p99_ms), idle, facts.address, facts.rack)


def _rate(value: float | None) -> str | None:
    return None if value is None else f"{value:,.1f}" if value < 10 else f"{value:,.0f}"


def _cell(value: object) -> Text:
    text = "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
    right = isinstance(value, int) or text[:1].isdigit()
    style = "bold red" if text in ("dead", "none") else ""
    return Text(printable(text), style, justify="right" if right else "left")
