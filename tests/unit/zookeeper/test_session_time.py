"""When a session pings, suspends itself and dies: to the millisecond, in a world without sleep."""

import asyncio
import gc
import itertools

import pytest

from ottla.model.errors import ConfigError
from ottla.zookeeper import jute
from ottla.zookeeper.access import settle
from ottla.zookeeper.addresses import ConnectString
from ottla.zookeeper.errors import (
    BadArgumentsError,
    ConnectionLossError,
    OperationTimeoutError,
    SessionExpiredError,
    TooManyRequestsError,
)
from ottla.zookeeper.session import MAX_PENDING, SessionState

CONNECTED, SUSPENDED, DEAD = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.DEAD


class Diary:
    """Notes each change of state with its time since the start."""

    def __init__(self, z) -> None:
        self.clock = z.world.clock
        self.start_s = self.clock.monotonic()
        self.entries = []

    def __call__(self, event) -> None:
        self.entries.append((round(self.clock.monotonic() - self.start_s, 2), event.state))


def test_an_idle_session_pings_each_third_and_lives(still):
    async def scenario(z):
        diary = Diary(z)
        s = await z.session(6000, diary)
        pings = []
        z.server.lose_reply(lambda op, _path: pings.append(z.loop.now_s) if op == 11 else False)
        await asyncio.sleep(61)
        assert s.state is CONNECTED
        assert diary.entries == []
        gaps = [b - a for a, b in itertools.pairwise(pings)]
        assert len(pings) == 30
        assert max(gaps) < 2.01
        assert min(gaps) > 1.99

    still(scenario)


def test_silence_suspends_at_two_thirds_and_kills_at_the_deadline(still):
    async def scenario(z):
        s = await z.session(6000)
        diary = Diary(z)
        s._on_event = diary
        z.network.black_hole = True
        await asyncio.sleep(20)
        # Attached at 0: silent since then, so suspended at 4 s and over at 6 s.
        assert diary.entries == [(4.0, SUSPENDED), (6.0, DEAD)]
        assert "deadline" in s.death

    still(scenario)


def test_the_deadline_counts_from_when_the_request_of_the_last_response_was_sent(still):
    async def scenario(z):
        s = await z.session(6000)
        z.network.latency_s = 1.5
        asked_s = z.loop.now_s
        await s.exists("/")
        assert z.loop.now_s - asked_s == pytest.approx(3.0, abs=0.01)
        assert s.deadline_s == pytest.approx(asked_s + 6.0, abs=0.01)

    still(scenario)


@pytest.mark.parametrize("first", ["callback", "bytes"])
def test_a_stall_past_the_deadline_is_death_before_anything_else(still, first):
    """Fault F9: nothing of the old session acts after the stall, whatever runs first."""

    async def scenario(z):
        order = []
        s = await z.session(6000, lambda e: order.append(e.state))
        await s.children("/", order.append)
        other = await z.session(60_000)
        made = other.create("/news")
        pending = s.get("/")
        await asyncio.sleep(0.0015)  # done; its event and our response are on the way to us

        def after_the_stall():
            assert s.state is DEAD
            order.append("callback")

        if first == "callback":
            z.loop.call_soon(after_the_stall)
        z.loop.stall(6.1)
        await asyncio.sleep(0.1)
        assert order[0] is DEAD
        assert order[1:] in ([], ["callback"]), "no watch of a dead session fires"
        await made
        with pytest.raises(SessionExpiredError):
            await pending
        with pytest.raises(SessionExpiredError):
            await s.get("/")

    still(scenario)


def test_a_stall_while_opening_costs_a_session_not_the_start(still):
    async def scenario(z):
        events = []
        asyncio.get_running_loop().call_later(0.0015, z.loop.stall, 4.5)
        s = await z.session(4000, events.append, connect_ms=20_000)
        assert s.state is CONNECTED
        assert s.session_id == 0x0100_0000_0000_0001
        assert events == []

    still(scenario)


def test_an_operation_after_the_stall_is_refused_though_the_timer_has_not_run(still):
    async def scenario(z):
        events = []
        s = await z.session(6000, events.append)
        z.loop.stall(7)
        future = s.get("/")
        assert events[-1].state is DEAD
        with pytest.raises(SessionExpiredError, match="deadline"):
            await future

    still(scenario)


def test_a_stall_shorter_than_the_deadline_is_survived(still):
    async def scenario(z):
        events = []
        s = await z.session(6000, events.append)
        await s.exists("/")
        z.loop.stall(5.5)
        await asyncio.sleep(30)
        assert s.state is CONNECTED
        assert DEAD not in [e.state for e in events]

    still(scenario)


def test_we_always_stop_before_the_server_gives_our_ephemerals_away(still):
    """For any moment the network dies, our deadline comes before the server's expiry."""

    async def scenario(z):
        for step in range(12):
            s = await z.session(6000)
            other = await z.session(60_000)
            gone = []
            await s.create("/e", ephemeral=True)
            await other.exists("/e", lambda _e, s=s, gone=gone: gone.append(s.state))
            await asyncio.sleep(0.5 * step)
            for transport in z.network.transports:
                if transport.protocol is s._wire:
                    transport.open = transport.peer.open = False
            z.network.listeners, kept = {}, z.network.listeners
            while not gone:
                await asyncio.sleep(0.01)
            assert gone == [DEAD]
            z.network.listeners = kept
            await other.close()

    still(scenario)


def test_a_suspended_session_goes_to_the_next_server(still):
    async def scenario(z):
        second = type(z.server)(z.world)
        await second.start(port=3000)
        second.tree, second.sessions = z.server.tree, z.server.sessions  # one ensemble
        s = await z.session(hosts=f"127.0.0.1:{z.server.port},127.0.0.1:3000")
        first_port = int(s.server.rpartition(":")[2])
        await s.create("/e", ephemeral=True)
        (z.server if first_port == z.server.port else second).stop()
        await asyncio.sleep(0.002)
        assert s.state is SUSPENDED
        await s.wait_connected()
        assert int(s.server.rpartition(":")[2]) != first_port
        assert (await s.exists("/e")).ephemeral_owner == s.session_id

    still(scenario)


def test_a_server_down_for_less_than_the_timeout_costs_nothing(still):
    """Fault F6: sessions continue when ZooKeeper comes back."""

    async def scenario(z):
        diary = Diary(z)
        s = await z.session(18_000, diary)
        await s.create("/e", ephemeral=True)
        await asyncio.sleep(1)
        z.server.stop()
        await asyncio.sleep(10)
        await z.server.start()
        await s.wait_connected()
        assert [state for _, state in diary.entries] == [SUSPENDED, CONNECTED]
        assert await s.exists("/e") is not None

    still(scenario)


def test_a_server_down_for_long_ends_the_session_and_a_new_one_opens(still):
    async def scenario(z):
        s = await z.session(6000)
        z.server.stop()
        await asyncio.sleep(1)
        with pytest.raises(SessionExpiredError):
            await s.wait_connected()
        await asyncio.sleep(60)
        await z.server.start()
        fresh = await z.session(6000)
        assert fresh.session_id != s.session_id

    still(scenario)


def test_no_server_is_one_clear_line(still):
    async def scenario(z):
        began_s = z.loop.now_s
        with pytest.raises(OperationTimeoutError, match=r"127.0.0.1:9.*in 3000 ms.*running"):
            await z.session(hosts="127.0.0.1:9", connect_ms=3000)
        assert z.loop.now_s - began_s < 4

    still(scenario)


def test_silence_at_the_end_does_not_hide_what_a_server_said_before(still):
    async def scenario(z):
        class Refuses(asyncio.Protocol):
            def connection_made(self, transport):
                self.transport = transport

            def data_received(self, data):
                self.transport.close()

        z.network.listeners[z.server.port] = Refuses
        asyncio.get_running_loop().call_later(1, setattr, z.network, "black_hole", True)
        with pytest.raises(OperationTimeoutError) as caught:
            await z.session(connect_ms=5000)
        assert "closed the connection" in str(caught.value)

    still(scenario)


def test_a_connection_that_breaks_while_opening_is_tried_again(still):
    async def scenario(z):
        listening = z.network.listeners[z.server.port]
        broken = []

        class Broken(asyncio.Protocol):
            def connection_made(self, transport):
                broken.append(transport)

            def data_received(self, data):
                broken[-1].close()

        z.network.listeners[z.server.port] = Broken
        asyncio.get_running_loop().call_later(
            1, z.network.listeners.__setitem__, z.server.port, listening
        )
        s = await z.session()
        assert s.state is CONNECTED
        assert broken

    still(scenario)


@pytest.mark.parametrize(
    "garbage",
    [
        jute.INT.pack(-1),
        jute.INT.pack(2**30),
        jute.reply(77, 1, 0),
        jute.INT.pack(3) + b"abc",
        jute.reply(jute.XID_NOTIFICATION, -1, 0, b"\0\0\0\1"),
        jute.reply(jute.XID_AUTH, 1, -115),
    ],
    ids=["negative", "huge", "unrequested", "short", "torn event", "auth"],
)
def test_garbage_from_the_server_suspends(still, garbage):
    async def scenario(z):
        events = []
        s = await z.session(on_event=events.append)
        pending = s.get("/")
        z.network.transports[-1].protocol.data_received(garbage)
        assert events[-1].state is SUSPENDED
        with pytest.raises(ConnectionLossError):
            await pending
        await s.wait_connected()

    still(scenario)


def test_a_reply_in_flight_when_the_session_expires_is_still_the_result(still):
    async def scenario(z):
        s = await z.session()
        z.network.latency_s = 0.2
        future = s.create("/x", b"1")
        await asyncio.sleep(0.3)
        z.server.expire(s.session_id)
        assert (await future)[0] == "/x"
        await asyncio.sleep(2)
        assert s.state is DEAD
        assert "expired" in s.death

    still(scenario)


def test_waiting_requests_have_a_bound(still):
    async def scenario(z):
        s = await z.session()
        futures = [s.exists("/") for _ in range(MAX_PENDING)]
        with pytest.raises(TooManyRequestsError):
            await s.exists("/")
        for future in futures:
            await future

    still(scenario)


def test_a_callback_that_fails_harms_no_other(still):
    async def scenario(z):
        problems, seen = [], []
        z.loop.set_exception_handler(lambda _loop, context: problems.append(context["exception"]))
        s = await z.session()
        await s.children("/", lambda _e: 1 / 0)
        await s.children("/", seen.append)
        await s.create("/x")
        assert len(seen) == 1
        assert isinstance(problems[0], ZeroDivisionError)
        assert s.state is CONNECTED

    still(scenario)


def test_a_cancelled_wait_leaves_the_pipeline_in_order(still):
    async def scenario(z):
        s = await z.session()
        first, second = s.exists("/"), s.get("/")
        first.cancel()
        assert (await second)[0] == b""
        assert s.statistics()["pending"] == 0

    still(scenario)


def test_connect_strings():
    parsed = ConnectString.parse("a:1, b ,[::1]:3/kafka/east/")
    assert parsed.hosts == (("a", 1), ("b", 2181), ("::1", 3))
    assert parsed.chroot == "/kafka/east"
    assert ConnectString.parse("h/").chroot == ""
    for bad in ("", "/x", "a:b", "a:0", "a:99999", ":5"):
        with pytest.raises(ConfigError, match=r"zookeeper\.connect"):
            ConnectString.parse(bad)
    with pytest.raises(BadArgumentsError):
        ConnectString.parse("a:1//x")


def test_requests_that_wait_when_the_session_ends_are_no_lost_exceptions(still):
    """Who waits for several of them is cancelled as the session ends, before it has looked."""

    async def scenario(z):
        reported = []
        z.loop.set_exception_handler(lambda _loop, context: reported.append(context["message"]))
        asking = []
        s = await z.session(6000, lambda event: event.state is DEAD and asking[0].cancel())
        closing = z.loop.create_task(s.close())
        await asyncio.sleep(0)

        async def ask():  # too late: the server has been told to end the session
            await settle([s.exists(path) for path in ("/a", "/b", "/c")])

        asking.append(z.loop.create_task(ask()))
        await closing
        await asyncio.gather(*asking, return_exceptions=True)
        assert asking.pop().cancelled()
        gc.collect()
        await asyncio.sleep(0.1)
        assert not reported

    still(scenario)
