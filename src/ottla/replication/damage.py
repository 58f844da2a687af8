"""Damage: what a broker does with a replica of which some records cannot be read (fault F20).

A decider. In ZooKeeper mode a broker has one way to be rid of a leadership or of its place in an
ISR: to respond to LeaderAndIsr with KAFKA_STORAGE_ERROR, as for a failed log dir. The controller
then elects another member of the ISR and takes this one out (Kafka's
`KafkaController.processLeaderAndIsrResponseReceived`).

Invariants:
- a damaged replica leaves the ISR only if another member is alive: the last one holds all there is
- it is replaced by an empty one only when it is not in the ISR, another replica leads, and the
  controller has been refused before: until it is answered otherwise it does not elect this one, and
  the leader proposes no replica that does not fetch
"""

from collections.abc import Collection, Container
from enum import Enum


class DamageDecision(Enum):
    """What becomes of a damaged replica."""

    SERVE = "serve what is intact"
    REFUSE = "refuse to lead or follow with it"
    REBUILD = "begin an empty one and copy it from the leader"


def decide(
    broker_id: int,
    leader: int,
    isr: Collection[int],
    alive: Container[int],
    *,
    refused: bool,
) -> DamageDecision:
    """Decide from what the controller says of the partition; `leader` is -1 if there is none.

    `refused` says whether this broker has refused the replica since it last took it on.
    """
    others = any(member != broker_id and member in alive for member in isr)
    if broker_id in isr:
        return DamageDecision.REFUSE if others else DamageDecision.SERVE
    if leader in (broker_id, -1):
        return DamageDecision.SERVE
    return DamageDecision.REBUILD if refused else DamageDecision.REFUSE
