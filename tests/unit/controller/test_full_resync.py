"""What follows where a broker fails at a request of the controller."""

import asyncio
from types import SimpleNamespace

import pytest

from ottla.controller import handlers
from ottla.controller.events import FullResyncDue
from ottla.model.errors import ControllerMovedError, ErrorCode


def answered(code, term):
    handlers.update_metadata_response(term, 2, SimpleNamespace(error_code=code))


def make():
    later = []
    return later, SimpleNamespace(
        start_timer=lambda delay_s, event: later.append((delay_s, event)), resync_scheduled=set()
    )


def test_c5_a_broker_that_failed_is_sent_everything_anew_later_and_once():
    later, term = make()
    for _ in range(3):
        answered(ErrorCode.UNKNOWN_SERVER_ERROR, term)
    assert later == [(handlers.RESYNC_DELAY_S, FullResyncDue(2))]


def test_refusals_are_not_repeated():
    later, term = make()
    answered(ErrorCode.STALE_BROKER_EPOCH, term)
    with pytest.raises(ControllerMovedError):
        answered(ErrorCode.STALE_CONTROLLER_EPOCH, term)
    assert later == []


def test_f45_a_partition_that_failed_at_a_broker_is_sent_anew_too():
    """A replica that could not be created for lack of a descriptor is nowhere until then."""
    later, term = make()
    topic = SimpleNamespace(
        topic_id=bytes(16),
        partition_errors=[
            SimpleNamespace(partition_index=n, error_code=code)
            for n, code in enumerate(
                [ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR]
            )
        ],
    )
    term.context = SimpleNamespace(
        offline_dirs={}, topic_names={bytes(16): "t"}, brokers={}, leadership={}
    )
    response = SimpleNamespace(error_code=ErrorCode.NONE, topics=[topic])
    asyncio.run(handlers.leader_and_isr_response(term, None, 2, response))
    assert later == [(handlers.RESYNC_DELAY_S, FullResyncDue(2))]
