"""Memory of responses that clients do not read: bounded, the slowest are closed first (R19)."""

import asyncio
import struct

MIB = 1 << 20
FETCH = b"\x00\x01\x00\x0c"
HEARTBEAT = b"\x00\x0c\x00\x03"


def framed(body):
    return struct.pack(">i", len(body)) + body


async def turns():
    """Let the loop turn a few times: requests that wait for the next turn are dispatched."""
    for _ in range(5):
        await asyncio.sleep(0)


class Reader:
    """Answers as much as there is room for, as the fetch handler does."""

    def __init__(self, wanted=4 * MIB):
        self.wanted = wanted
        self.sizes = []

    def __call__(self, connection, frame):
        if frame[:2] != FETCH[:2]:
            return [b"short"]
        self.sizes.append(min(self.wanted, connection.max_response_bytes()))
        return [bytes(self.sizes[-1])]


def test_three_hundred_readers_that_never_read(bench, run):
    """F47: together they hold no more than the bound, whatever their requests."""

    async def main():
        reader = Reader()
        at = await bench(reader, queued_response_bytes=64 * MIB, max_connection_rate=1e6).start()
        taps = [at.connect() for _ in range(300)]
        for tap in taps:
            tap.stuck = True
            for _ in range(5):
                tap.receive(framed(FETCH))
        held = sum(tap.stuck_bytes for tap in taps)
        assert at.server.responses.used_bytes == held <= 48 * MIB + 65_540
        assert max(reader.sizes) == 4 * MIB, "as long as there is room, answers are as asked for"
        for tap in taps:
            tap.close()
        await asyncio.sleep(0)
        assert at.server.responses.used_bytes == 0
        assert at.server.responses.waiting == 0

    run(main)


def test_clients_that_read_go_on_while_others_never_do(bench, run):
    async def main():
        at = await bench(Reader(), queued_response_bytes=16 * MIB, max_connection_rate=1e6).start()
        for _ in range(300):
            tap = at.connect()
            tap.stuck = True
            tap.receive(framed(FETCH))
        assert at.server.responses.full
        other = at.connect()
        other.receive(framed(HEARTBEAT))
        assert len(other.output()) == 9, "what has a short answer waits for nobody"
        other.receive(framed(FETCH))
        assert len(other.output()) == 9
        at.later(1)
        assert len(other.output()) == 9
        for _ in range(3):
            at.later(1.5)
            await turns()
        assert len(other.output()) > 65_536
        assert at.server.responses.used_bytes <= 16 * MIB + 65_540
        assert not other.closing

    run(main)


def test_the_slowest_are_closed_first(bench, run, caplog):
    async def main():
        at = await bench(lambda c, f: [bytes(MIB)], queued_response_bytes=15 * MIB + 300).start()
        taps = [at.connect() for _ in range(9)]
        for tap in taps:
            tap.stuck = True
            tap.receive(framed(FETCH))
            at.later(0.1)
            await turns()
        for _ in range(10):
            # The first three go on reading, slowly.
            for tap in taps[:3]:
                tap.stuck_bytes -= 1000
            at.later(1)
        assert [tap.closing for tap in taps] == [False] * 3 + [True] * 4 + [False] * 2
        assert at.server.responses.used_bytes == 5 * (MIB + 4), "whole until the last byte is taken"

    run(main)
    assert any("took nothing of" in r.getMessage() for r in caplog.records)


def test_brokers_are_counted_apart(bench, run):
    """What followers have not taken yet takes no room from clients, nor the other way round."""

    async def main():
        def answer(connection, frame):
            if frame[4:] == b"broker":
                connection.serves_broker()
            return [bytes(MIB)]

        at = await bench(answer, queued_response_bytes=4 * MIB).start()
        clients, brokers = ([at.connect() for _ in range(n)] for n in (6, 2))
        for tap in (*clients, *brokers):
            tap.stuck = True
        for tap in clients:
            tap.receive(framed(FETCH))
        assert at.server.responses.full
        for tap in brokers:
            tap.receive(framed(HEARTBEAT + b"broker"))
            tap.stuck = False
            tap.stuck_bytes = 0
            tap.protocol.resume_writing()
            await asyncio.sleep(0)
            tap.receive(framed(FETCH + b"broker"))
            assert len(tap.output()) == 2 * (MIB + 4)
        assert at.server.broker_responses.used_bytes == 0

    run(main)
