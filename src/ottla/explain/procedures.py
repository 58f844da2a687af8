"""Procedures: the controller's whole procedures, run again over what the journal says they read.

A decider. A term is followed from its beginning or from a snapshot on: each event is handled again
by the procedure that its first line names, each read and write is answered from the journal
(`replayed_term`), and every line that is written is compared with the journal's, in order. So a
step that is left out, added or swapped is a difference, though each single decision is right.
Invariants: nothing is compared where lines are missing or a journal does not hold all that was read
(those of older versions): not until the next snapshot; the lines of one event are held together, of
a larger one than `MAX_LINES` none; an event that was cut short (the end of its term or of the
journal) is compared as far as it goes; after a difference the context follows the journal's lines;
where it cannot, for they name what cannot be (damage that leaves a line valid), that is a
difference, and nothing is compared until the next snapshot.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ottla.controller import failover
from ottla.controller.context import Context, Settings
from ottla.explain.followed import Followed
from ottla.explain.lines import Entry
from ottla.explain.replayed_term import (
    NOTHING,
    CutShortError,
    DiffersError,
    EventLines,
    ReplayedTerm,
    failure,
    name_of,
    text_of,
)
from ottla.explain.starts import start_of
from ottla.model import journal_schema as journaled

MAX_LINES = 300_000


@dataclass(frozen=True, slots=True)
class Difference:
    """A line that the installed rules would have written differently; of an event, the first."""

    where: str
    ts: int
    epoch: int
    cause: int
    decider: str
    subject: str
    journal: str
    now: str

    @staticmethod
    def at(entry: Entry, decider: str, subject: str, journal: str, now: str) -> "Difference":
        line = entry.line
        return Difference(
            entry.where, line.ts, line.epoch, line.cause, decider, subject, journal, now
        )


@dataclass(slots=True)
class Procedures:
    """Takes a journal's lines; counts the procedures run again, keeps what differs."""

    checked: int = 0
    differences: list[Difference] = field(default_factory=list)
    _followed: Followed | None = None
    _term: ReplayedTerm | None = None
    _event: tuple[int, int] = (-1, -1)
    _lines: list[Entry] = field(default_factory=list)

    def take(self, entry: Entry) -> None:
        """Take one line."""
        line = entry.line
        event = (line.epoch, line.cause)
        resigned = isinstance(entry.facts, journaled.Resigned)
        if event != self._event or resigned:
            self._run(cut_short=resigned or line.epoch != self._event[0])
            self._event = event
        if resigned:
            self._lose()
        elif isinstance(entry.facts, journaled.Elected):
            self._lose()
            self._lines = [entry]
        elif isinstance(line, journaled.SnapshotLine) and not self._elected:
            with self._failure_is_difference(entry):
                self._take_snapshot(entry)
        elif self._term is not None or self._elected:
            self._lines.append(entry)
            if len(self._lines) > MAX_LINES:
                self._lose()

    @property
    def _elected(self) -> bool:
        """Whether the lines are those of a controller failover, from its first one on."""
        return bool(self._lines) and isinstance(self._lines[0].facts, journaled.Elected)

    def lines_missing(self) -> None:
        """Take note that the journal has a gap here."""
        self._lose()

    def finish(self) -> None:
        """Compare what is left: the journal ends here."""
        self._run(cut_short=True)

    def _lose(self) -> None:
        self._followed, self._term, self._lines = None, None, []

    @contextlib.contextmanager
    def _failure_is_difference(self, entry: Entry) -> Iterator[None]:
        """Run what relies on lines, of which `entry` is the first; its failure is a difference."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever cannot be may be named
            self._lose()
            self._differs(entry, name_of(entry), DiffersError(text_of(entry), failure(error)))

    def _take_snapshot(self, entry: Entry) -> None:
        facts = entry.facts
        if isinstance(facts, journaled.ClusterFacts):
            self._lines = []
            if self._followed is None and facts.registered is not None:
                self._begin(entry, facts)
        elif isinstance(facts, journaled.TopicFacts) and self._followed is not None:
            self._followed.take_topic(facts)

    def _begin(self, entry: Entry, facts: journaled.ClusterFacts) -> Followed:
        """Begin with what a snapshot says."""
        followed = self._followed = Followed.begin(entry.line.epoch, facts)
        self._term = ReplayedTerm(followed.context, _settings(entry, facts))
        return followed

    def _run(self, *, cut_short: bool) -> None:
        """Run the procedures of the event whose lines are complete."""
        elected = self._elected
        lines, self._lines = self._lines, []
        if not lines:
            return
        with self._failure_is_difference(lines[0]):
            if elected:
                self._fail_over(lines, cut_short=cut_short)
            elif self._followed is not None and self._term is not None:
                self._followed.loaded = True
                self._compare(self._followed, self._term, lines, cut_short=cut_short)

    def _fail_over(self, lines: Sequence[Entry], *, cut_short: bool) -> None:
        """Run a controller failover again; its snapshot has the settings."""
        snapshot = next((e for e in lines if isinstance(e.facts, journaled.ClusterFacts)), None)
        if snapshot is None or snapshot.facts.registered is None:
            return
        context = Context(lines[0].line.epoch)
        self._followed = Followed(context, loaded=True)
        term = self._term = ReplayedTerm(context, _settings(snapshot, snapshot.facts))
        event = EventLines(lines, cut_short=cut_short)
        event.skip()
        self.checked += 1
        try:
            term.run(failover.on_controller_failover, event, self._event[1])
            if event.next is not None:
                raise DiffersError(text_of(event.next), NOTHING)
        except CutShortError:
            self._lose()
        except DiffersError as found:
            self._differs(event.next or snapshot, "Elected", found)
            followed = self._begin(snapshot, snapshot.facts)
            for entry in lines:
                if isinstance(entry.facts, journaled.TopicFacts):
                    followed.take_topic(entry.facts)
            followed.follow(lines)

    def _compare(
        self, followed: Followed, term: ReplayedTerm, lines: Sequence[Entry], *, cut_short: bool
    ) -> None:
        event = EventLines(lines, cut_short=cut_short)
        started = False
        try:
            while (entry := event.next) is not None:
                start = start_of(followed.context, entry)
                if start is not None:
                    self.checked += 1
                    started = True
                    term.run(start, event, self._event[1])
                    if event.next is entry:
                        raise DiffersError(text_of(entry), NOTHING)
                elif started:
                    raise DiffersError(text_of(entry), NOTHING)
                else:
                    event.skip()
        except CutShortError:
            self._lose()
        except DiffersError as found:
            self._differs(event.next or lines[-1], name_of(lines[0]), found)
            followed.follow(lines)

    def _differs(self, entry: Entry, name: str, found: DiffersError) -> None:
        difference = Difference.at(entry, "procedures", name, found.journal, found.now)
        self.differences.append(difference)


def _settings(entry: Entry, facts: journaled.ClusterFacts) -> Settings:
    return Settings(
        entry.line.controller,
        "",
        delete_topics=facts.delete_topics is not False,
        eligible_replicas=facts.eligible_replicas,
    )
