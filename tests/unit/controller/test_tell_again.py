"""What follows where a broker fails at a request of the controller."""

import asyncio
from types import SimpleNamespace

import pytest

from ottla.controller import brokers
from ottla.controller.events import BrokerFellBehind
from ottla.model.errors import ControllerMovedError, ErrorCode


def answered(code, term):
    brokers.update_metadata_answered(term, 2, SimpleNamespace(error_code=code))


def make():
    later = []
    return later, SimpleNamespace(
        later=lambda delay_s, event: later.append((delay_s, event)), to_be_told_again=set()
    )


def test_c5_a_broker_that_failed_is_told_everything_anew_later_and_once():
    later, term = make()
    for _ in range(3):
        answered(ErrorCode.UNKNOWN_SERVER_ERROR, term)
    assert later == [(brokers.TELL_AGAIN_S, BrokerFellBehind(2))]


def test_refusals_are_not_repeated():
    later, term = make()
    answered(ErrorCode.STALE_BROKER_EPOCH, term)
    with pytest.raises(ControllerMovedError):
        answered(ErrorCode.STALE_CONTROLLER_EPOCH, term)
    assert later == []


def test_f45_a_partition_that_failed_at_a_broker_is_told_anew_too():
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
    asyncio.run(brokers.leader_and_isr_answered(term, 2, response))
    assert later == [(brokers.TELL_AGAIN_S, BrokerFellBehind(2))]
