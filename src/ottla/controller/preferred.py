"""Preferred leaders: leadership goes back to the first assigned replica.

Who may call: `failover`, `loop`. Invariants: a preferred replica leads only from within the ISR.
Answers to `onReplicaElection`, `checkAndTriggerAutoLeaderRebalance` and
`fetchPendingPreferredReplicaElections`.
"""

from ottla.controller.reign import Reign


async def begin(reign: Reign) -> None:
    """At failover: finish what /admin/preferred_replica_election asks for."""
    del reign
