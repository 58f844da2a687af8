"""Producer ids: blocks, prefetching, refusals; every id once."""

import asyncio
from types import SimpleNamespace

import pytest

from ottla.broker.producer_ids import NoProducerIdError, ProducerIds
from ottla.model.errors import ConnectionLostError, ErrorCode
from ottla.wire.messages.control import AllocateProducerIdsResponse


class Controller:
    """Hands out blocks of ten; `script` says what to answer first."""

    def __init__(self, *script):
        self.script = list(script)
        self.next = 0
        self.asked = []

    async def send(self, request, version, timeout_s):
        self.asked.append(request.broker_epoch)
        if self.script:
            answer = self.script.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return AllocateProducerIdsResponse(error_code=answer)
        start, self.next = self.next, self.next + 10
        return AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=10)


def run(coroutine):
    return asyncio.run(coroutine)


def test_ids_come_in_order_and_each_once():
    async def go():
        controller = Controller()
        ids = ProducerIds(1, SimpleNamespace(broker_epoch=42), controller.send)
        return [await ids.next() for _ in range(25)], controller.asked

    taken, asked = run(go())
    assert taken == list(range(25))
    assert set(asked) == {42}


def test_the_next_block_is_requested_before_the_first_is_used_up():
    async def go():
        controller = Controller()
        ids = ProducerIds(1, SimpleNamespace(broker_epoch=1), controller.send)
        for _ in range(9):
            await ids.next()
        before = len(controller.asked)
        ids.take()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return before, len(controller.asked), ids.take()

    assert run(go()) == (1, 2, 10)


def test_nothing_at_hand_is_none_not_an_error():
    async def go():
        ids = ProducerIds(1, SimpleNamespace(broker_epoch=1), Controller().send)
        first = ids.take()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return first, ids.take()

    assert run(go()) == (None, 0)


@pytest.mark.parametrize(
    "trouble", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NOT_CONTROLLER, ConnectionLostError("x")]
)
def test_after_a_refusal_the_request_is_sent_again(trouble, monkeypatch):
    monkeypatch.setattr("ottla.broker.producer_ids.RETRY_BACKOFF_S", 0)

    async def go():
        controller = Controller(trouble, trouble)
        ids = ProducerIds(1, SimpleNamespace(broker_epoch=1), controller.send)
        return await ids.next(), len(controller.asked)

    assert run(go()) == (0, 3)


def test_a_controller_that_never_responds_is_given_up(monkeypatch):
    monkeypatch.setattr("ottla.broker.producer_ids.GIVE_UP_AFTER_S", 0.01)

    async def silence(request, version, timeout_s):
        await asyncio.get_running_loop().create_future()

    async def go():
        ids = ProducerIds(1, SimpleNamespace(broker_epoch=1), silence)
        try:
            await ids.next()
        finally:
            await ids.close()

    with pytest.raises(NoProducerIdError):
        run(go())


def test_a_block_that_goes_back_is_refused(monkeypatch):
    monkeypatch.setattr("ottla.broker.producer_ids.RETRY_BACKOFF_S", 0)

    async def go():
        controller = Controller()
        ids = ProducerIds(1, SimpleNamespace(broker_epoch=1), controller.send)
        for _ in range(8):
            await ids.next()
        controller.next = 0
        taken = [await ids.next() for _ in range(4)]
        return taken, len(controller.asked)

    taken, asked = run(go())
    assert taken == [8, 9, 10, 11]
    assert asked == 3
