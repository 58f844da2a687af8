"""Which replica a consumer is sent to, as Kafka's RackAwareReplicaSelector would choose."""

import pytest

from ottla.replication.replica_manager import Candidate, nearest

NEAR, FAR = "near", "far"


def candidate(broker_id, rack=NEAR, end=100, behind_ms=0.0):
    return Candidate(broker_id, rack, end, behind_ms)


@pytest.mark.parametrize(
    ("rack", "leader_rack", "candidates", "chosen"),
    [
        pytest.param("", FAR, [candidate(1)], None, id="a client without a rack"),
        pytest.param(NEAR, NEAR, [candidate(1)], None, id="the leader is as near"),
        pytest.param(NEAR, FAR, [candidate(1, FAR)], None, id="nobody near"),
        pytest.param(NEAR, None, [candidate(1, None)], None, id="no racks at all"),
        pytest.param(NEAR, FAR, [], None, id="nobody in sync"),
        pytest.param(NEAR, FAR, [candidate(1, FAR), candidate(2)], 2, id="the one that is near"),
        pytest.param(NEAR, None, [candidate(2)], 2, id="a leader without a rack"),
        pytest.param(NEAR, FAR, [candidate(1, end=9), candidate(2, end=8)], 1, id="the furthest"),
        pytest.param(
            NEAR,
            FAR,
            [candidate(1, behind_ms=5), candidate(2, behind_ms=9)],
            1,
            id="caught up last",
        ),
        pytest.param(NEAR, FAR, [candidate(1), candidate(2)], 2, id="the highest id"),
    ],
)
def test_the_replica_to_read_from(rack, leader_rack, candidates, chosen):
    assert nearest(rack, leader_rack, candidates) == chosen
