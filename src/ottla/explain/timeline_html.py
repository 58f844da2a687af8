"""A timeline as one HTML page: nothing is fetched from elsewhere; it can be mailed and kept.

Invariants: those of `model.html`; at most MOST_PARTITIONS are drawn, those with the most changes,
the others are counted.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from ottla.explain.spans import DOWN, SHUTTING_DOWN, Event, Gap, Timeline, gaps
from ottla.explain.timestamps import time_text
from ottla.model import html
from ottla.model.html import COLOURS, Html, tag
from ottla.model.ids import TopicPartition
from ottla.model.printable import plural

MOST_PARTITIONS = 1000
MOST_GAPS = 1000
ROW = 18
UNITS = 10_000
"""Width of the drawing in its own units; zooming changes which of them are seen."""

STYLE = """
.t{white-space:nowrap;font-family:monospace}
#w{display:flex}#n{flex:none;font:12px monospace;width:190px;overflow:hidden}
#n div{height:18px;line-height:18px;white-space:nowrap}#n div.h{height:12px;line-height:12px}
svg{flex:1;min-width:0;background:#f4f4f4;cursor:grab}
@media(prefers-color-scheme:dark){svg{background:#242424}}
"""
SCRIPT = """
const s=document.getElementById('s'),W=UNITS;let a=0,b=W;
function show(){s.setAttribute('viewBox',a+' 0 '+(b-a)+' '+s.dataset.h)}
function zoom(f,at){const m=a+(b-a)*at,n=Math.max(1,Math.min(W,(b-a)*f));
a=Math.max(0,Math.min(W-n,m-n*at));b=a+n;show()}
s.addEventListener('wheel',e=>{e.preventDefault();
zoom(e.deltaY<0?.8:1.25,e.offsetX/s.clientWidth)},{passive:false});
let x=null;s.addEventListener('pointerdown',e=>{x=e.clientX});
window.addEventListener('pointerup',()=>{x=null});
s.addEventListener('pointermove',e=>{if(x===null)return;const n=b-a,
d=(x-e.clientX)*n/s.clientWidth;x=e.clientX;a=Math.max(0,Math.min(W-n,a+d));b=a+n;show()});
document.getElementById('i').onclick=()=>zoom(.5,.5);
document.getElementById('o').onclick=()=>zoom(2,.5);
for(const r of document.querySelectorAll('tr[data-x]'))r.onclick=()=>{const n=Math.max(1,
(r.dataset.y-r.dataset.x)*4);a=Math.max(0,Math.min(W-n,+r.dataset.x-n*3/8));b=a+n;show()};
"""


def page(timeline: Timeline, session_timeouts_ms: Mapping[int, int], title: str) -> Html:
    """Return the page."""
    return html.page(title, picture(timeline, session_timeouts_ms), STYLE, script())


def script() -> str:
    """Return what a picture needs to be zoomed and moved."""
    return SCRIPT.replace("UNITS", str(UNITS))


def picture(
    timeline: Timeline,
    session_timeouts_ms: Mapping[int, int],
    links: Mapping[TopicPartition, Sequence[str]] = MappingProxyType({}),
) -> Iterator[Html]:
    """Yield the drawing with its tables; it needs STYLE, and `script` after it.

    `links`: where the bars of a partition's last changes lead to, empty for nowhere; the last one
    is that of its last change.
    """
    drawing = _Drawing(timeline, session_timeouts_ms, links)
    rows = list(drawing.rows())
    height = max(drawing.height, ROW)
    yield tag(
        "p",
        f"{time_text(timeline.start)} to {time_text(timeline.end)}. Turn the wheel to zoom, drag "
        "to move, point at a bar for the reason, click on a row of the table below to see that "
        "time. ",
        tag("button", "+", id="i"),
        tag("button", "\N{MINUS SIGN}", id="o"),
    )
    svg = tag(
        "svg",
        *rows,
        id="s",
        data_h=height,
        height=height,
        viewBox=f"0 0 {UNITS} {height}",
        preserveAspectRatio="none",
    )
    yield tag("div", tag("div", *drawing.names, id="n"), svg, id="w")
    if drawing.left:
        left = plural(drawing.left, "more partition is", "more partitions are")
        yield tag("p", f"{left} not drawn: name a topic.")
    yield from drawing.tables()


class _Drawing:
    def __init__(
        self,
        timeline: Timeline,
        session_timeouts_ms: Mapping[int, int],
        links: Mapping[TopicPartition, Sequence[str]],
    ) -> None:
        self._timeline = timeline
        self._links = links
        self._gaps = gaps(timeline, session_timeouts_ms)
        self._of_partition: dict[TopicPartition, list[Gap]] = {}
        for gap in self._gaps:
            self._of_partition.setdefault(gap.tp, []).append(gap)
        self._length = max(timeline.end - timeline.start, 1)
        most = sorted(timeline.changes, key=lambda tp: (-len(timeline.changes[tp]), tp))
        self._chosen = sorted(most[:MOST_PARTITIONS])
        self.left = len(most) - len(self._chosen)
        brokers = {r for c in timeline.changes.values() for x in c if x.now for r in x.now.replicas}
        known = sorted(brokers | set(timeline.brokers))
        self._colours = {b: COLOURS[i % len(COLOURS)] for i, b in enumerate(known)}
        self.names: list[Html] = []
        self.height = 0

    def _x(self, ts: int | None) -> float:
        at = self._timeline.end if ts is None else ts
        return round((at - self._timeline.start) * UNITS / self._length, 2)

    def _bar(
        self,
        start: int,
        end: int | None,
        colour: str,
        text: str,
        *,
        height: int = ROW - 3,
        below: int = 0,
    ) -> Html:
        left, right = self._x(start), self._x(end)
        width = f"{max(right - left, 0.5):.2f}"
        return tag(
            "rect",
            tag("title", text),
            x=left,
            y=self.height + below,
            width=width,
            height=height,
            fill=colour,
        )

    def _begin(self, name: str) -> None:
        self.names.append(tag("div", name, title=name))

    def rows(self) -> Iterator[Html]:
        timeline = self._timeline
        self._begin("controller")
        for term in timeline.terms:
            text = f"controller {term.controller}, epoch {term.epoch}, from {time_text(term.start)}"
            colour = self._colours.get(term.controller, COLOURS[-1])
            yield self._bar(term.start, term.end, colour, text)
        self.height += ROW
        for broker, states in sorted(timeline.brokers.items()):
            self._begin(f"broker {broker}")
            for index, state in enumerate(states):
                end = states[index + 1].ts if index + 1 < len(states) else None
                colour = "#c22" if state.state == DOWN else self._colours[broker]
                colour = "#ddaa33" if state.state == SHUTTING_DOWN else colour
                text = f"broker {broker} {state.state} from {time_text(state.ts)}"
                yield self._bar(state.ts, end, colour, text)
            self.height += ROW
        for tp in self._chosen:
            yield from self._partition(tp)

    def _partition(self, tp: TopicPartition) -> Iterator[Html]:
        changes = self._timeline.changes[tp]
        links = self._links.get(tp, ())
        self._begin(str(tp))
        for index, change in enumerate(changes):
            end = changes[index + 1].ts if index + 1 < len(changes) else None
            if change.now is None:
                continue
            now = change.now
            isr = ",".join(map(str, now.isr))
            leader = f"leader {now.leader}" if now.leader >= 0 else "no leader"
            text = f"{tp}: {leader}, epoch {now.epoch}, in sync {isr}\n{time_text(change.ts)}"
            colour = self._colours.get(now.leader, "#c22")
            bar = self._bar(change.ts, end, colour, f"{text}\n{change.why}", height=ROW - 6)
            place = index - len(changes) + len(links)
            link = links[place] if place >= 0 else ""
            name = f"{time_text(change.ts)}: {leader}, in sync {isr}"
            yield tag("a", bar, href=link, aria_label=name) if link else bar
            if not set(now.isr) >= set(now.replicas):
                why = f"{text}\n{change.why}"
                yield self._bar(change.ts, end, "#ddaa33", why, height=3, below=ROW - 6)
        for gap in self._of_partition.get(tp, ()):
            if gap.dying:
                text = f"{tp}: the leader's process may be dead\n{gap.why}"
                yield self._bar(gap.start, gap.end, "#e99", text, height=ROW - 6)
        self.height += ROW

    def tables(self) -> Iterator[Html]:
        yield tag("h2", "Events")
        if self._timeline.events:
            yield html.table(("time", "what"), map(self._event, self._timeline.events))
        else:
            yield tag("p", "None.")
        yield tag("h2", "Without a leader")
        if not self._gaps:
            yield tag("p", "At no time.")
            return
        yield html.table(("partition", "from", "ms", "why"), map(self._gap, self._gaps[:MOST_GAPS]))
        if len(self._gaps) > MOST_GAPS:
            yield tag("p", f"{len(self._gaps) - MOST_GAPS:,} more are left out: name a topic.")

    def _gap(self, gap: Gap) -> Html:
        end = self._timeline.end if gap.end is None else gap.end
        length = f"{end - gap.start:,}"
        length += " at most: its process died in this time" if gap.dying else ""
        length += ", not over" if gap.end is None else ""
        time = tag("td", time_text(gap.start), class_="t")
        cells = tag("td", gap.tp), time, tag("td", length), tag("td", gap.why)
        return tag("tr", *cells, data_x=self._x(gap.start), data_y=self._x(end))

    def _event(self, event: Event) -> Html:
        at = self._x(event.ts)
        cells = tag("td", time_text(event.ts), class_="t"), tag("td", event.what)
        return tag("tr", *cells, data_x=at, data_y=at + 1)
