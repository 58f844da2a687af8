"""Outbox: what the controller sends brokers, and what it writes down.

A decider but for what its channels do. Invariants: requests are queued before anything of them is
written into the journal; those to the controller's own broker come last; no step works on more than
a slice before it lets the loop go on. `explain` runs the same code: there no channel delivers, and
each line is compared.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.controller.batch import RequestBatch
from ottla.controller.elections import ElectionKind
from ottla.controller.journal import CHANGES_A_LINE, Change
from ottla.controller.plan import Decision
from ottla.controller.state_change_logger import StateChangeLogger
from ottla.model.cluster import RECOVERING, BrokerInfo
from ottla.model.journal_schema import ClusterFacts, Event, TopicFacts
from ottla.model.steps import slices, yield_to_loop
from ottla.model.transitions import IllegalTransitionError

if TYPE_CHECKING:
    from ottla.controller.term import ControllerTerm

logger = logging.getLogger(__name__)

_ELECTIONS = {kind.value for kind in ElectionKind}


class Outbox:
    """One term's."""

    def __init__(self, term: "ControllerTerm") -> None:
        self.elections = Counter[str]()
        """Partitions that got a leader by an election, by the kind of election."""
        self.unclean_total = 0
        """Those of them whose leader was not in the ISR: records may be lost."""
        self._term = term
        self._state_changes = StateChangeLogger(term.context, term.settings.controller_id)

    # --- brokers ----------------------------------------------------------------------------

    def open(self, broker: BrokerInfo) -> None:
        """Begin to deliver requests to a broker."""
        self._term.channels.add(broker)

    def close(self, broker: int) -> None:
        """Drop a broker's channel and what is queued in it."""
        self._term.channels.remove(broker)

    async def send(
        self,
        batch: RequestBatch,
        changes: Sequence[Change],
        decisions: Sequence[tuple[Decision, str]],
    ) -> None:
        """Queue a batch's requests, then write down what changed, was decided and sent.

        Those to the controller's own broker come last: while this process handles them, it sends
        nothing to the others.
        """
        term = self._term
        sent, own = [], []
        for request in batch.requests():
            if request is not None:
                sent.append(request)
                if request.broker == term.settings.controller_id:
                    own.append(request)
                else:
                    term.channels.send(request)
            await yield_to_loop()
        for request in own:
            term.channels.send(request)
        await self.record_changes(changes, decisions)
        for request in sent:
            term.journal.request(request.broker, request.api_key, request.summary)
        self._state_changes.sent(sent)

    # --- the journal and state-change.log ---------------------------------------------------

    def record(self, event: Event) -> None:
        """Write an event into the journal."""
        self._term.journal.event(event)

    async def record_changes(
        self, changes: Sequence[Change], decisions: Sequence[tuple[Decision, str]]
    ) -> None:
        """Write state changes and decisions into the journal."""
        for some in slices(changes, CHANGES_A_LINE):
            self._term.journal.state_changes(some)
            # In slices also where the level is off: a log level must not change what runs when.
            for few in slices(some):
                self._state_changes.changed(few)
                await yield_to_loop()
        for made in slices(decisions):
            self._record_decisions(made)
            await yield_to_loop()

    def record_at_once(
        self, changes: Sequence[Change], decisions: Sequence[tuple[Decision, str]]
    ) -> None:
        """Write into the journal what a procedure had done before it failed."""
        if changes:
            self._term.journal.state_changes(changes)
        self._record_decisions(decisions)

    def _record_decisions(self, decisions: Sequence[tuple[Decision, str]]) -> None:
        for decision, outcome in decisions:
            self._term.journal.decision(decision, outcome)
            if outcome == "written" and decision.kind in _ELECTIONS:
                self._count(decision)

    def _count(self, decision: Decision) -> None:
        before, after = decision.before, decision.after
        assert before is not None
        assert after is not None
        if after.leader_epoch != before.leader_epoch:
            self.elections[decision.kind] += 1
            self.unclean_total += (
                after.recovery_state == RECOVERING and after.leader not in before.isr
            )

    def record_snapshot(self, part: str, facts: ClusterFacts | TopicFacts) -> int:
        """Write a part of the context into the journal; return its size in bytes."""
        return self._term.journal.snapshot(part, facts)

    def end_snapshot(self, size: int) -> None:
        """Let the journal have room for several snapshots of this size: one is complete."""
        self._term.journal.snapshot_ended(size)

    def log_refusals(self, refusals: Sequence[IllegalTransitionError]) -> None:
        """Log state changes that are not legal, in state-change.log, too."""
        for refused in refusals:
            logger.error(
                "transition refused controller_epoch=%d reason=%s",
                self._term.context.epoch,
                refused,
            )
        self._state_changes.refused(refusals)

    def check_controller(self) -> None:
        """Look who the controller is, before anything else: a newer one has written a state."""
        self._term.check_controller()
