"""Event times: how many events of each kind the controller handled, and how long the last took.

Invariants: an event costs one addition and one float; kinds and names are those of Kafka's
`ControllerState.rateAndTimeMetricName`, which the oracle tests compare. From an event's begin until
its procedure has ended, waits for ZooKeeper included, as in Kafka.
"""

from collections.abc import Iterator, Mapping

from ottla.controller import events as happened
from ottla.controller.events import Event
from ottla.model.recent_times import RecentTimes

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
        self._of = {name: RecentTimes() for name in METRICS.values()}

    def note(self, event: Event, seconds: float) -> None:
        """Note that an event was handled, and how long it took."""
        name = METRICS.get(type(event))
        if name is not None:
            self._of[name].note(seconds)

    def counts(self) -> Iterator[tuple[str, int]]:
        """Yield (metric, events handled since the start)."""
        for name, of in self._of.items():
            yield name, of.count

    def times(self) -> Iterator[tuple[str, list[float]]]:
        """Yield (metric, the last times in ms, sorted) of kinds that have come."""
        for name, of in self._of.items():
            if of.count:
                yield name, of.times()
