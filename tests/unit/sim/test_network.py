"""Links that delay, block and drop; hosts that vanish; streams that stay in order."""

import asyncio

import pytest

from ottla.sim.world import Simulation


class Sink(asyncio.Protocol):
    def __init__(self):
        self.data = bytearray()
        self.lost = None
        self.transport = None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.data += data

    def connection_lost(self, exc):
        self.lost = exc or True


class Pair:
    """Two nodes and one connection from `a` to `b`."""

    def __init__(self, seed=1):
        self.simulation = Simulation(seed)
        self.a, self.b = self.simulation.node("a"), self.simulation.node("b")
        self.server = Sink()
        self.b.boot(self._serve)
        self.a.boot(self._idle)
        self.simulation.run_for(1)

    async def _serve(self, world):
        await world.network.listen("b", 9092, lambda: self.server)
        await asyncio.sleep(10_000)

    async def _idle(self, world):
        await asyncio.sleep(10_000)

    def connect(self, timeout_s=5.0):
        async def go():
            _, protocol = await self.a.world.network.connect("b", 9092, Sink, timeout_s=timeout_s)
            return protocol

        return self.a.call(go())


@pytest.fixture
def pair():
    pair = Pair()
    yield pair
    pair.simulation.close()


def test_a_blocked_direction_holds_bytes_until_it_is_healed(pair):
    client = pair.connect()
    net = pair.simulation.internet
    client.transport.write(b"one ")
    net.block("a", "b")
    client.transport.write(b"two ")
    pair.simulation.run_for(5)
    pair.server.transport.write(b"hello")
    pair.simulation.run_for(1)
    assert client.data == b"hello"
    assert pair.server.data == b""
    net.unblock("a", "b")
    client.transport.write(b"three")
    pair.simulation.run_for(5)
    assert pair.server.data == b"one two three"
    assert pair.server.lost is None


@pytest.mark.parametrize("seed", range(10))
def test_order_holds_whatever_the_links_do(seed):
    pair = Pair(seed)
    net = pair.simulation.internet
    client = pair.connect()
    net.link("a", "b").jitter_s = 0.5
    net.link("a", "b").stall_chance = 0.3
    sent = bytearray()
    for i in range(100):
        part = bytes([i]) * (i * 997 % 3000 + 1)
        client.transport.write(part)
        sent += part
        if i % 10 == 3:
            net.block("a", "b")
        if i % 10 == 7:
            net.unblock("a", "b")
        pair.simulation.run_for(0.01)
    pair.simulation.run_for(30)
    assert pair.server.data == sent
    pair.simulation.close()


def test_a_sender_gives_up_in_the_end(pair):
    client = pair.connect()
    pair.simulation.internet.block("a", "b")
    client.transport.write(b"x")
    pair.simulation.run_for(pair.simulation.internet.give_up_s - 1)
    assert client.lost is None
    pair.simulation.run_for(2)
    assert isinstance(client.lost, TimeoutError)
    assert pair.server.lost is None


def test_connecting_into_a_partition_times_out(pair):
    pair.simulation.internet.partition(["a"], ["b"])
    before = pair.simulation.now
    with pytest.raises(TimeoutError):
        pair.connect(timeout_s=3.0)
    assert pair.simulation.now - before == pytest.approx(3.0)


def test_a_killed_process_resets_its_connections_after_what_it_sent(pair):
    client = pair.connect()
    pair.simulation.run_for(1)
    pair.server.transport.write(b"last words")
    pair.b.crash()
    pair.simulation.run_for(1)
    assert client.data == b"last words"
    assert isinstance(client.lost, ConnectionResetError)
    with pytest.raises(ConnectionRefusedError):
        pair.connect()


def test_a_machine_without_power_says_nothing_until_it_is_back(pair):
    client = pair.connect()
    pair.b.crash(power_loss=True)
    client.transport.write(b"anybody?")
    pair.simulation.run_for(5)
    assert client.lost is None
    with pytest.raises(TimeoutError):
        pair.connect(timeout_s=1.0)
    pair.server = Sink()
    pair.b.boot()
    pair.simulation.run_for(2)
    assert isinstance(client.lost, OSError)
    pair.connect().transport.write(b"again")
    pair.simulation.run_for(1)
    assert pair.server.data == b"again"


def test_a_host_that_refuses_lets_no_one_in_though_its_program_lives(pair):
    net, asked = pair.simulation.internet, []
    net.on_refused = lambda *who: asked.append(who)
    client = pair.connect()
    net.refuse("b")
    with pytest.raises(ConnectionRefusedError):
        pair.connect()
    assert asked == [("a", "b", 9092)]
    client.transport.write(b"still there")
    pair.simulation.run_for(1)
    assert pair.server.data == b"still there"
    net.accept("b")
    pair.connect()
    assert len(asked) == 1


def test_a_proxy_accepts_for_a_program_that_is_gone_until_it_is_back(pair):
    pair.b.crash()
    pair.simulation.internet.answer_for("b")
    client = pair.connect()
    client.transport.write(b"anybody?" * 100_000)
    pair.simulation.run_for(5)
    assert client.data == b""
    assert client.lost is None
    pair.server = Sink()
    pair.b.boot()
    pair.simulation.run_for(1)
    assert isinstance(client.lost, ConnectionResetError)
    pair.connect().transport.write(b"again")
    pair.simulation.run_for(1)
    assert pair.server.data == b"again"


def test_a_paused_node_is_connected_to_but_does_not_answer(pair):
    pair.b.pause()
    client = pair.connect()
    client.transport.write(b"x")
    pair.simulation.run_for(60)
    assert pair.server.transport is None
    assert client.lost is None
    pair.b.resume()
    pair.simulation.run_for(1)
    assert pair.server.data == b"x"


def test_connections_can_be_reset_from_outside(pair):
    client = pair.connect()
    pair.simulation.run_for(1)
    assert pair.simulation.internet.reset_connections("a", "b") == 1
    pair.simulation.run_for(1)
    assert isinstance(client.lost, ConnectionResetError)
    assert isinstance(pair.server.lost, ConnectionResetError)


def test_a_reader_that_left_breaks_the_pipe(pair):
    client = pair.connect()
    pair.simulation.run_for(1)
    client.transport.pause_reading()
    pair.server.transport.close()
    pair.simulation.run_for(1)
    client.transport.write(b"x")
    pair.simulation.run_for(1)
    client.transport.write(b"y")
    client.transport.resume_reading()
    pair.simulation.run_for(1)
    assert client.lost is not None


def test_heal_opens_every_link(pair):
    net = pair.simulation.internet
    net.partition(["a"], ["b"])
    net.heal()
    client = pair.connect()
    client.transport.write(b"x")
    pair.simulation.run_for(1)
    assert pair.server.data == b"x"


def test_bytes_of_a_connection_that_was_given_up_arrive_after_those_of_the_next(pair):
    client = pair.connect()
    former = pair.server
    client.transport.pipe.hold(5.0)
    client.transport.write(b"late")
    client.transport.kernel_reset(ConnectionResetError("by the network"))
    pair.simulation.run_for(1)
    assert client.lost
    pair.server = Sink()
    pair.connect().transport.write(b"next")
    pair.simulation.run_for(1)
    assert (bytes(former.data), bytes(pair.server.data)) == (b"", b"next")
    pair.simulation.run_for(5)
    assert bytes(former.data) == b"late"
    assert former.lost
