"""Control requests and the life of this broker they were meant for (BrokerEpochIntegrationTest)."""

import pytest

from ottla.model.errors import ErrorCode
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.wire.messages.stop_replica import StopReplicaRequest
from ottla.wire.messages.update_metadata import UpdateMetadataRequest

REQUESTS = [(LeaderAndIsrRequest, 7), (StopReplicaRequest, 4), (UpdateMetadataRequest, 8)]


@pytest.mark.parametrize(("kind", "version"), REQUESTS, ids=lambda v: getattr(v, "__name__", v))
def test_a_newer_broker_epoch_than_ours_is_taken(scene, kind, version):
    """The controller read a registration that our own answer has not told us of yet."""
    broker = scene.up(1)
    epoch = broker.services.broker_epoch
    for difference, expected in (
        (-1, ErrorCode.STALE_BROKER_EPOCH),
        (0, ErrorCode.NONE),
        (1, ErrorCode.NONE),
    ):
        request = kind(controller_id=1, controller_epoch=1, broker_epoch=epoch + difference)
        assert scene.ask(1, request, version).error_code == expected, difference
