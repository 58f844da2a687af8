"""Balance: when leadership is too far from where the assignment wants it.

A decider. Invariant: a broker's share is what names it first in the assignment; a broker without a
share has nothing elsewhere. Kafka: the arithmetic of
`KafkaController.checkAndTriggerAutoLeaderRebalance`.
"""


def too_much_elsewhere(elsewhere: int, share: int, limit: float) -> bool:
    """Return whether more than `limit` (a fraction) of a broker's share is led by others."""
    return elsewhere > limit * share
