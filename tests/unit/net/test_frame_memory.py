"""Memory of frames under way: charged for received bytes, none waits for announced bytes (R19)."""

import asyncio
import random
import struct

import pytest

from ottla.net.frame_memory import GRACE_S

MIB = 1 << 20
LEADER_AND_ISR = b"\x00\x04"


def echo(connection, frame):
    return (bytes(frame[:8]),)


def announce(tap, size, start=b"xx"):
    tap.receive(struct.pack(">i", size) + start)


def send(tap, data):
    """Send as a peer does whose socket buffer takes what is not read."""
    tap.receive(data, 1 << 16)


async def settle(taps):
    """Let everything happen that can; what was refused is read where reading goes on."""
    ready = asyncio.get_running_loop()._ready
    for _ in range(200):
        await asyncio.sleep(0)
        idle = not ready
        for tap in taps:
            if tap.reading and tap.refused_input and not tap.closing:
                idle = False
                send(tap, b"")
        if idle:
            return


def answers(tap):
    return len(tap.output()) // 12


def test_announced_frames_delay_no_other_connection(bench, run):
    """F47: a hundred clients announce 100 MiB each and send 70 KB; others are served at once."""

    async def main():
        at = await bench(echo, queued_bytes=64 * MIB).start()
        hostile = [at.connect() for _ in range(100)]
        for tap in hostile:
            announce(tap, 100 * MIB, bytes(70_000))
        assert at.server.budget.used_bytes <= 4 * 100 * 70_000
        for size in (200_000, 2 * MIB, 20 * MIB):
            other = at.connect()
            announce(other, size)
            send(other, bytes(size - 2))
            await settle([other])
            assert answers(other) == 1, size
        for tap in hostile:
            tap.close()
        assert at.server.budget.used_bytes == 0

    run(main)


def test_large_frames_leave_room_for_small_ones_and_for_control_requests(bench, run):
    """R19: large frames of clients that stall fill their part of the memory, and no more."""

    async def main():
        at = await bench(echo, queued_bytes=16 * MIB).start()
        hostile = [at.connect() for _ in range(40)]
        for tap in hostile:
            announce(tap, 50 * MIB)
            send(tap, bytes(MIB))
        await settle(hostile)
        assert at.server.budget.waiting
        # One of them may pass the bound.
        assert at.server.budget.used_bytes <= 16 * MIB + 4 * MIB
        small, control = at.connect(), at.connect()
        announce(small, 300_000)
        send(small, bytes(299_998))
        announce(control, 10 * MIB, LEADER_AND_ISR)
        send(control, bytes(10 * MIB - 2))
        await settle([small, control])
        assert answers(small) == answers(control) == 1
        assert at.server.budget.control_bytes == 0

    run(main)


def test_connections_that_send_too_slowly_are_closed_while_others_wait(bench, run, caplog):
    """F47: no frame waits for memory that a stalled one holds, which is said once a second."""

    async def main():
        at = await bench(echo, queued_bytes=16 * MIB).start()
        at.server.unread = lambda transport: len(transport.refused_input)
        hostile = [at.connect() for _ in range(40)]
        for tap in hostile:
            announce(tap, 50 * MIB)
            send(tap, bytes(MIB))
        await settle(hostile)
        other = at.connect()
        announce(other, 8 * MIB)
        send(other, bytes(8 * MIB - 2))
        await settle([other])
        assert answers(other) == 0
        for _ in range(30):
            if answers(other):
                break
            at.clock.now += GRACE_S
            at.server._sweep_memory()
            await settle([*hostile, other])
        assert answers(other) == 1
        assert not other.closing
        assert at.server.budget.closed_total >= 1

    run(main)
    lines = [r.getMessage() for r in caplog.records if "waited for its memory" in r.getMessage()]
    assert 1 <= len(lines) <= 12


def test_frames_that_wait_for_each_other_all_come_in(bench, run):
    """No deadlock: all have a part, none has enough, and all go on sending."""

    async def main():
        at = await bench(echo, queued_bytes=8 * MIB).start()
        taps = [at.connect() for _ in range(12)]
        size = 6 * MIB
        for tap in taps:
            announce(tap, size)
        for _ in range(size // MIB):
            for tap in taps:
                send(tap, bytes(MIB))
        for tap in taps:
            tap.refused_input = tap.refused_input[: size - 2]
        await settle(taps)
        assert [answers(tap) for tap in taps] == [1] * 12
        assert at.server.budget.used_bytes == 0

    run(main)


def test_one_frame_larger_than_all_memory_comes_in(bench, run):
    async def main():
        at = await bench(echo, queued_bytes=MIB).start()
        tap = at.connect()
        announce(tap, 20 * MIB)
        send(tap, bytes(20 * MIB - 2))
        await settle([tap])
        assert answers(tap) == 1

    run(main)


def test_a_frame_is_charged_until_its_request_is_done(bench, run):
    """What a worker still checks is in memory, too, although its frame is complete."""

    async def main():
        pendings = []

        def park(connection, frame):
            pendings.append(connection.pending(pipelined=False))
            return pendings[-1]

        at = await bench(park).start()
        tap = at.connect()
        announce(tap, MIB)
        send(tap, bytes(MIB - 2))
        assert at.server.budget.used_bytes == MIB
        pendings[0].complete([b"done"])
        await settle([tap])
        assert at.server.budget.used_bytes == 0

    run(main)


@pytest.mark.parametrize("seed", range(15))
def test_nothing_is_lost_or_left_whatever_happens(bench, run, seed):
    """Any mix of sizes, stalls, departures and control requests: all is given back in the end."""
    rng = random.Random(seed)

    async def main():
        at = await bench(echo, queued_bytes=4 * MIB).start()
        taps, left = [], {}
        for _ in range(300):
            what = rng.random()
            if what < 0.2 or not left:
                tap = at.connect()
                taps.append(tap)
                size = rng.choice([70_000, 300_000, MIB, 3 * MIB, 7 * MIB])
                announce(tap, size, rng.choice([b"xx", LEADER_AND_ISR]))
                left[tap] = size - 2
                continue
            tap = rng.choice(list(left))
            if what < 0.25 and not tap.closing:
                tap.close()
            if tap.closing:
                del left[tap]
                continue
            count = min(left[tap], rng.randrange(1, 600_000))
            send(tap, bytes(count))
            left[tap] -= count
            if not left[tap]:
                del left[tap]
            if what > 0.9:
                at.later(rng.choice([0.1, 1]))
            await settle(rng.sample(taps, min(3, len(taps))))
        for tap, count in left.items():
            if not tap.closing:
                send(tap, bytes(count))
        await settle(taps)
        for tap in taps:
            assert tap.closing or answers(tap) == 1
        budget = at.server.budget
        assert (budget.used_bytes, budget.control_bytes, budget.waiting) == (0, 0, 0)
        assert not budget._holders
        assert budget._beyond is None

    run(main)
