"""Event times: how many events of each kind the controller handled, and how long the last took.

Who may call: `loop` notes, the broker's metrics look. Invariants: an event costs one addition and
one float; kinds and names are those of Kafka's `ControllerState.rateAndTimeMetricName`, which the
oracle tests compare. From an event's begin until its procedure has ended, waits for ZooKeeper
included, as in Kafka.
"""

from collections import deque
from collections.abc import Iterator, Mapping

from ottla.controller import events as happened
from ottla.controller.events import Event

KEPT = 256
"""Times kept of each kind: percentiles are of these."""
LEADER_ELECTION = "LeaderElectionRateAndTimeMs"

METRICS: Mapping[type[Event], str] = {
    happened.ControllerChanged: "ControllerChangeRateAndTimeMs",
    happened.SessionBegan: "ControllerChangeRateAndTimeMs",
    happened.BrokersChanged: LEADER_ELECTION,
    happened.BrokerModified: LEADER_ELECTION,
    happened.TopicsChanged: "TopicChangeRateAndTimeMs",
    happened.PartitionsModified: "TopicChangeRateAndTimeMs",
    happened.TopicDeletionsRequested: "TopicDeletionRateAndTimeMs",
    happened.StopReplicaResponseReceived: "TopicDeletionRateAndTimeMs",
    happened.IsrChangesNotified: "IsrChangeRateAndTimeMs",
    happened.AlterPartitionReceived: "IsrChangeRateAndTimeMs",
    happened.LogDirsFailed: "LogDirChangeRateAndTimeMs",
    happened.PreferredElectionRequested: "ManualLeaderBalanceRateAndTimeMs",
    happened.ElectLeadersReceived: "ManualLeaderBalanceRateAndTimeMs",
    happened.LeaderBalanceDue: "AutoLeaderBalanceRateAndTimeMs",
    happened.ReassignmentRequested: "PartitionReassignmentRateAndTimeMs",
    happened.AlterReassignmentsReceived: "PartitionReassignmentRateAndTimeMs",
    happened.ListReassignmentsReceived: "ListPartitionReassignmentRateAndTimeMs",
    happened.UncleanElectionEnabled: "TopicUncleanLeaderElectionEnableRateAndTimeMs",
    happened.ControlledShutdownReceived: "ControlledShutdownRateAndTimeMs",
    happened.LeaderAndIsrResponseReceived: "LeaderAndIsrResponseReceivedRateAndTimeMs",
}
"""Events without a metric are not Kafka's, or Kafka's `Idle`."""


class EventTimes:
    """Counts and milliseconds by the metric's name; both are 0 until the first event of a kind."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(METRICS.values(), 0)
        self._kept: dict[str, deque[float]] = {}

    def note(self, event: Event, seconds: float) -> None:
        """Note that an event was handled, and how long it took."""
        name = METRICS.get(type(event))
        if name is None:
            return
        self._counts[name] += 1
        kept = self._kept.get(name)
        if kept is None:
            kept = self._kept[name] = deque(maxlen=KEPT)
        kept.append(round(seconds * 1000, 3))

    def counts(self) -> Iterator[tuple[str, int]]:
        """Yield (metric, events handled since the start)."""
        yield from self._counts.items()

    def times(self) -> Iterator[tuple[str, list[float]]]:
        """Yield (metric, the last times in ms, sorted) of kinds that have come."""
        for name, kept in self._kept.items():
            yield name, sorted(kept)
