"""Connections: answers in order, bounds held, nothing kept for those who left."""

import asyncio
import struct

import pytest

from ottla.model.errors import WireError
from ottla.net.connection import CloseConnection, Pending
from ottla.net.limits import MOST_AHEAD_S, ConnectionQuotas
from ottla.net.server import NEWCOMER_S, SILENT_S

PRODUCE = b"\x00\x00\x00\x09"
FETCH = b"\x00\x01\x00\x0c"


def framed(*bodies):
    return b"".join(struct.pack(">i", len(b)) + b for b in bodies)


def frames_of(data):
    out = []
    while data:
        (size,) = struct.unpack_from(">i", data)
        out.append(data[4 : 4 + size])
        data = data[4 + size :]
    return out


def echo(connection, frame):
    return (frame,)


class Dropped(Pending):
    """Calls `on_drop` if the connection goes away before the response came."""

    on_drop = None

    def drop(self):
        if not self.done and self.on_drop is not None:
            self.on_drop()
        super().drop()


class Parker:
    """Parks every request; `open` holds (frame, pending) in the order of dispatch."""

    def __init__(self):
        self.open = []

    def __call__(self, connection, frame):
        if frame[:1] == b"!":
            return (bytes(frame),)
        pending = Dropped(connection, pipelined=frame[:2] == b"\x00\x00")
        self.open.append((bytes(frame), pending))
        return pending


def test_responses_of_one_chunk_leave_in_one_write(bench, run):
    async def main():
        tap = (await bench(echo).start()).connect()
        tap.receive(framed(b"one!", b"two!", b""))
        assert frames_of(tap.output()) == [b"one!", b"two!", b""]
        assert tap.writes == 1

    run(main)


def test_what_waits_is_counted(bench, run):
    """Kafka's RequestQueueSize and ResponseQueueSize, counted when they are read."""

    async def main():
        parker = Parker()
        table = await bench(parker).start()
        tap, other = table.connect(), table.connect()
        tap.receive(framed(PRODUCE, PRODUCE, FETCH, FETCH))
        other.receive(framed(FETCH))
        assert table.server.queued() == (2, 0), "what is parked waits for no handler"
        parker.open[1][1].complete((b"second",))
        assert table.server.queued() == (2, 1), "the second answer waits for the first"
        parker.open[0][1].complete((b"first",))
        await asyncio.sleep(0)
        assert table.server.queued() == (1, 0), "the first Fetch is at work"

    run(main)


def test_produce_is_pipelined_with_responses_in_order(bench, run):
    async def main():
        parker = Parker()
        tap = (await bench(parker).start()).connect()
        tap.receive(framed(*[PRODUCE + bytes([i]) for i in range(5)]))
        assert len(parker.open) == 5
        for i in (4, 1, 3, 2):
            parker.open[i][1].complete([b"a%d" % i])
        await asyncio.sleep(0)
        assert tap.output() == b""
        parker.open[0][1].complete([b"a", b"0"])
        await asyncio.sleep(0)
        assert frames_of(tap.output()) == [b"a0", b"a1", b"a2", b"a3", b"a4"]
        assert tap.writes == 1

    run(main)


def test_the_sixth_produce_waits_and_stops_the_reading(bench, run):
    async def main():
        parker = Parker()
        tap = (await bench(parker).start()).connect()
        tap.receive(framed(*[PRODUCE + bytes([i]) for i in range(7)]))
        assert len(parker.open) == 5
        assert not tap.reading
        parker.open[0][1].complete([b"a"])
        await asyncio.sleep(0)
        assert len(parker.open) == 6
        assert not tap.reading
        parker.open[1][1].complete([b"a"])
        await asyncio.sleep(0)
        assert len(parker.open) == 7
        assert tap.reading

    run(main)


def test_other_requests_wait_for_those_before_and_block_those_behind(bench, run):
    async def main():
        parker = Parker()
        tap = (await bench(parker).start()).connect()
        tap.receive(framed(PRODUCE, FETCH, PRODUCE))
        assert [f for f, _ in parker.open] == [PRODUCE]
        parker.open[0][1].complete([b"p"])
        await asyncio.sleep(0)
        assert [f for f, _ in parker.open] == [PRODUCE, FETCH]
        parker.open[1][1].complete([b"f"])
        await asyncio.sleep(0)
        assert len(parker.open) == 3
        assert frames_of(tap.output()) == [b"p", b"f"]

    run(main)


def test_a_direct_response_queues_behind_open_produces(bench, run):
    answers = iter(["pending", "direct", "none", "done"])
    held = []

    def dispatch(connection, frame):
        kind = next(answers)
        if kind == "direct":
            return [b"second"]
        if kind == "none":
            return None
        pending = connection.pending(pipelined=True)
        if kind == "done":
            pending.complete([b"fourth"])
        else:
            held.append(pending)
        return pending

    async def main():
        tap = (await bench(dispatch).start()).connect()
        tap.receive(framed(PRODUCE, PRODUCE, PRODUCE, PRODUCE))
        assert tap.output() == b""
        held[0].complete([b"first"])
        await asyncio.sleep(0)
        assert frames_of(tap.output()) == [b"first", b"second", b"fourth"]

    run(main)


def test_a_pending_completed_before_it_is_returned_is_a_direct_response(bench, run):
    def dispatch(connection, frame):
        pending = connection.pending(pipelined=False)
        pending.complete([b"now"])
        return pending

    async def main():
        tap = (await bench(dispatch).start()).connect()
        tap.receive(framed(FETCH, FETCH))
        assert frames_of(tap.output()) == [b"now", b"now"]

    run(main)


def test_a_lost_connection_drops_its_pendings_once(bench, run):
    async def main():
        parker = Parker()
        tap = (await bench(parker).start()).connect()
        tap.receive(framed(PRODUCE, PRODUCE))
        dropped = []
        for i, (_, pending) in enumerate(parker.open):
            pending.on_drop = lambda i=i: dropped.append(i)
        parker.open[1][1].complete([b"x"])
        tap.close()
        assert dropped == [0]
        parker.open[0][1].complete([b"late"])
        await asyncio.sleep(0)
        assert tap.output() == b""

    run(main)


def test_fail_closes_the_connection(bench, run):
    async def main():
        parker = Parker()
        tap = (await bench(parker).start()).connect()
        tap.receive(framed(PRODUCE))
        parker.open[0][1].fail("storage gone")
        assert tap.closing

    run(main)


@pytest.mark.parametrize("error", [CloseConnection("no"), WireError("bad"), ValueError("bug")])
def test_errors_of_a_dispatch_close_after_earlier_responses(bench, run, error):
    def dispatch(connection, frame):
        if frame == b"bad":
            raise error
        return (frame,)

    async def main():
        at = await bench(dispatch).start()
        tap = at.connect()
        tap.receive(framed(b"good", b"bad", b"never"))
        assert frames_of(tap.output()) == [b"good"]
        assert tap.closing
        assert at.server.refused_count == 1

    run(main)


def test_http_is_refused_with_a_hint(bench, run, caplog):
    async def main():
        tap = (await bench(echo).start()).connect()
        tap.receive(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert tap.closing

    run(main)
    assert "looks like HTTP" in caplog.text


def test_a_peer_that_does_not_drain_gets_nothing_more(bench, run):
    """Fault F30."""
    served = []

    def dispatch(connection, frame):
        served.append(bytes(frame))
        return [bytes(10_000)]

    async def main():
        at = await bench(dispatch, outbound_high_bytes=50_000).start()
        tap = at.connect()
        tap.stuck = True
        tap.receive(framed(*[FETCH] * 100))
        assert 5 <= len(served) <= 12
        assert not tap.reading
        tap.drain()
        await asyncio.sleep(0)
        assert len(served) == 100
        assert tap.reading

    run(main)


def test_a_peer_that_drains_nothing_for_long_is_closed(bench, run):
    async def main():
        at = await bench(lambda c, f: [bytes(200_000)], outbound_high_bytes=50_000).start()
        tap = at.connect()
        tap.stuck = True
        tap.receive(framed(FETCH))
        at.later(1)
        at.later(58)
        assert not tap.closing
        tap.stuck_bytes -= 1
        at.later(30)
        at.later(59)
        assert not tap.closing
        at.later(1)
        assert tap.aborted

    run(main)


def test_a_trickled_request_is_closed_and_a_slow_large_one_is_not(bench, run):
    """Fault F29."""

    async def main():
        at = await bench(echo).start()
        slow, large, half_size = at.connect(), at.connect(), at.connect()
        slow.receive(struct.pack(">i", 1000) + b"x")
        large.receive(struct.pack(">i", 10_000_000) + b"x")
        half_size.receive(b"\x00")
        for _ in range(29):
            at.later(1)
            slow.receive(b"x")
            large.receive(bytes(100_000))
        assert not any(tap.closing for tap in (slow, large, half_size))
        at.later(2)
        assert slow.closing
        assert half_size.closing
        assert not large.closing

    run(main)


def test_idle_connections_go_busy_and_parked_ones_stay(bench, run):
    async def main():
        parker = Parker()
        at = await bench(parker, idle_ms=10_000).start()
        idle, busy, parked = at.connect(), at.connect(), at.connect()
        parked.receive(framed(FETCH))
        for _ in range(10):
            at.later(1)
            busy.receive(framed(b"!"))
        assert idle.closing
        assert not busy.closing
        assert not parked.closing

    run(main)


def test_connections_are_counted_in_and_out(bench, run):
    """Fault F28."""

    async def main():
        at = await bench(echo, max_connections=3, max_connections_per_ip=2).start()
        a, b = at.connect(("1.1.1.1", 1)), at.connect(("1.1.1.1", 2))
        assert at.connect(("1.1.1.1", 3)).aborted
        c = at.connect(("2.2.2.2", 1))
        assert at.connect(("3.3.3.3", 1)).aborted
        assert not any(tap.closing for tap in (a, b, c))
        b.close()
        assert not at.connect(("1.1.1.1", 4)).closing
        assert at.server.statistics()["connections"] == 3
        assert at.server.statistics()["refused"] == 2

    run(main)


def test_a_reconnect_storm_is_accepted_but_read_at_the_rate(bench, run):
    async def main():
        at = await bench(echo, max_connection_rate=10.0).start()
        taps = [at.connect() for _ in range(15)]
        await asyncio.sleep(0)
        assert [tap.reading for tap in taps] == [True] * 11 + [False] * 4

    run(main)


def test_connections_that_are_dropped_delay_nobody(bench, run):
    """Thirty thousand connections, each gone before it was read, leave the next one its place."""

    async def main():
        at = await bench(echo, max_connection_rate=10.0).start()
        for _ in range(30_000):
            at.connect().close()
        tap = at.connect()
        await asyncio.sleep(0)
        assert tap.reading

    run(main)


def test_a_flood_delays_its_own_address_and_by_a_second_at_most(bench, run):
    async def main():
        at = await bench(echo, max_connection_rate=10.0).start()
        for _ in range(900):
            tap = at.connect(("1.1.1.1", 1))
            tap.receive(framed(b"x"))
            tap.close()
        last, other = at.connect(("1.1.1.1", 2)), at.connect(("2.2.2.2", 1))
        await asyncio.sleep(0)
        assert other.reading
        assert not last.reading
        assert at.server._pace("1.1.1.1").delay_s(at.clock.now) == MOST_AHEAD_S

    run(main)


def test_brokers_on_their_own_listener_are_not_paced(bench, run):
    async def main():
        at = await bench(echo, max_connection_rate=10.0).start()
        at.server.between_brokers = True
        taps = [at.connect() for _ in range(50)]
        await asyncio.sleep(0)
        assert all(tap.reading for tap in taps)

    run(main)


def test_who_shows_nothing_loses_the_place_to_a_later_client(bench, run):
    """Half-open connections of one address are not its last ones."""

    async def main():
        at = await bench(echo, max_connections_per_ip=3).start()
        works, silent, partial = (at.connect(("1.1.1.1", i)) for i in range(3))
        works.receive(framed(b"x"))
        partial.receive(framed(b"x")[:3])
        assert at.connect(("1.1.1.1", 4)).aborted, "they get a moment"
        at.later(SILENT_S)
        late = at.connect(("1.1.1.1", 5))
        assert not late.closing
        assert silent.aborted
        late.receive(framed(b"x"))
        assert at.connect(("1.1.1.1", 6)).aborted, "a part of a request came"
        at.later(NEWCOMER_S)
        assert not at.connect(("1.1.1.1", 7)).closing
        assert partial.aborted
        assert not works.closing
        assert not late.closing
        assert at.server.statistics()["connections"] == 3

    run(main)


def test_who_waits_to_be_read_is_not_silent(bench, run):
    async def main():
        at = await bench(echo, max_connections_per_ip=2, max_connection_rate=1.0).start()
        waits, silent = at.connect(), at.connect()
        at.server.unread = lambda transport: 9 * (transport is waits)
        at.later(SILENT_S)
        assert not at.connect().closing
        assert silent.aborted
        assert not waits.closing

    run(main)


def test_newcomers_of_an_address_are_found_behind_those_of_others(bench, run):
    async def main():
        at = await bench(echo, max_connections_per_ip=200).start()
        others = [at.connect(("2.2.2.2", i)) for i in range(150)]
        ours = [at.connect(("1.1.1.1", i)) for i in range(200)]
        at.later(SILENT_S)
        assert not at.connect(("1.1.1.1", 999)).closing
        assert [tap.aborted for tap in ours] == [True] + [False] * 199
        assert not any(tap.closing for tap in others)
        for tap in ours[1:]:
            tap.close()
        for tap in others:
            tap.receive(framed(b"x"))
        assert len(at.server._newcomers) == 1
        assert list(at.server._newcomers_of) == ["1.1.1.1"]

    run(main)


BROKERS, FIRST = b"broker", b"first"


def kept(bench, places, **limits):
    """Return a bench whose server keeps places; BROKERS is what brokers send."""
    at = bench(echo, **limits)
    quotas = at.server._connection_quotas
    at.server._connection_quotas = ConnectionQuotas(
        quotas.max_connections, quotas.max_per_ip, broker_places=places
    )
    at.server._is_of_broker = lambda _, frame: {BROKERS: True, FIRST: None}.get(bytes(frame), False)
    return at


@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_ip"])
def test_brokers_get_a_place_where_clients_have_them_all(bench, run, limit):
    async def main():
        at = await kept(bench, 2, **{limit: 3}).start()
        clients = [at.connect() for _ in range(3)]
        for tap in clients:
            tap.receive(framed(b"x"))
        broker, client = at.connect(), at.connect()
        broker.receive(framed(FIRST))
        broker.receive(framed(BROKERS))
        broker.receive(framed(b"anything"))
        client.receive(framed(b"x"))
        await asyncio.sleep(0)
        assert frames_of(broker.output()) == [FIRST, BROKERS, b"anything"]
        assert not broker.closing
        assert client.closing
        assert frames_of(client.output()) == []
        client.close()
        waits, second = at.connect(), at.connect()
        assert waits.aborted, "the oldest on trial gives way"
        second.receive(framed(BROKERS))
        assert at.connect().aborted, "both places are taken by brokers"
        assert not any(tap.closing for tap in (*clients, broker, second))
        broker.close()
        again = at.connect()
        again.receive(framed(BROKERS))
        assert not again.closing
        for tap in (*clients, second, again):
            tap.close()
        quotas = at.server._connection_quotas
        assert (quotas.total, quotas._brokers, quotas._on_trial) == (0, 0, {})
        assert at.server.statistics()["connections"] == 0

    run(main)


def test_a_flood_of_trials_leaves_nothing_behind(bench, run):
    async def main():
        at = await kept(bench, 4, max_connections=1).start()
        at.connect().receive(framed(b"x"))
        for _ in range(1000):
            at.connect()
        assert len(at.server.connections) == 5
        broker = at.connect()
        broker.receive(framed(BROKERS))
        for _ in range(1000):
            at.connect()
        assert not broker.closing
        assert len(at.server.connections) == 5

    run(main)


def test_the_quota_of_an_address_refuses_what_is_far_above_it(bench, run):
    """KIP-612: Kafka closes these connections, too."""

    async def main():
        at = await bench(echo).start()
        at.server._connection_quotas.rate_of = lambda _: 10.0
        taps = [at.connect(("1.1.1.1", i)) for i in range(40)]
        assert 20 <= sum(not tap.aborted for tap in taps) <= 24
        assert not at.connect(("2.2.2.2", 1)).aborted

    run(main)


def test_throttle_stops_reading_for_a_while(bench, run):
    async def main():
        at = await bench(echo).start()
        tap = at.connect()
        tap.protocol.throttle(1)
        assert not tap.reading
        tap.receive(framed(b"x"))
        while not tap.reading:
            await asyncio.sleep(0)
        tap.receive(b"")
        assert frames_of(tap.output()) == [] if tap.refused_input else True
        tap.protocol.throttle(0)
        assert tap.reading

    run(main)


def test_closing_a_server_sends_the_responses_that_are_ready(bench, run):
    async def main():
        at = await bench(echo).start()
        tap = at.connect()
        tap.receive(framed(b"x"))
        await at.server.close()
        assert tap.closing
        assert frames_of(tap.output()) == [b"x"]

    run(main)


def test_a_held_server_accepts_and_reads_nothing_until_it_is_released(bench, run):
    async def main():
        at = bench(echo)
        at.server.held = True
        await at.start()
        early = at.connect()
        early.receive(framed(b"early"))
        await asyncio.sleep(0)
        assert early.output() == b""
        assert not early.reading
        at.server.release()
        at.server.release()
        await asyncio.sleep(0)
        assert frames_of(early.output()) == [b"early"]
        assert early.reading
        late = at.connect()
        late.receive(framed(b"late"))
        assert frames_of(late.output()) == [b"late"]

    run(main)


def test_a_connection_accepted_before_the_release_and_made_after_it_is_served(bench, run):
    """An event loop makes the protocol at once and the connection a turn later."""

    async def main():
        at = bench(echo)
        at.server.held = True
        await at.start()
        accept = at.network.factory
        between = accept()
        at.server.release()
        at.network.factory = lambda: between
        tap = at.connect()
        tap.receive(framed(b"between"))
        assert frames_of(tap.output()) == [b"between"]

    run(main)
