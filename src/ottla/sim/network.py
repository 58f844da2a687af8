"""The simulated network: hosts, links, connections, and every way they fail.

Invariants: a connection's bytes arrive in order and whole, or the connection is lost; each
direction of a link has a seeded delay and may be blocked on its own; the receiver's window bounds
what is under way, so a reader that stops reaches the writer as `pause_writing`. The kernel lives on
while a node is paused: it accepts, receives up to the window and acknowledges.
"""

import asyncio
import errno
import random
from collections.abc import Callable, Iterable

from ottla.model.ports import Listener
from ottla.sim.costs import FREE
from ottla.sim.loop import SimLoop
from ottla.sim.scheduler import Scheduler
from ottla.sim.trace import Trace
from ottla.sim.transport import Delivery, Link, Message, Pipe, SimTransport

FIRST_PORT = 30_000
RETRANSMIT_S = 0.2
ZOOKEEPER_PORT = 2181
"""What goes over it costs what znodes cost."""


class SimListener:
    """A listening socket of one node's incarnation."""

    def __init__(
        self, network: "SimNetwork", port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self.network = network
        self.factory = factory
        self._port = port

    @property
    def port(self) -> int:
        return self._port

    def close(self) -> None:
        listeners = self.network.internet.listeners
        if listeners.get((self.network.host, self._port)) is self:
            del listeners[self.network.host, self._port]


class Internet:
    """All hosts and what lies between them."""

    def __init__(self, scheduler: Scheduler, rng: random.Random, trace: Trace) -> None:
        self.scheduler = scheduler
        self.trace = trace
        self.random = rng
        self._chance = rng.random
        self.costs = FREE
        self.base_s = 0.0003
        self.jitter_s = 0.0002
        self.give_up_s = 20.0
        """After so long without an acknowledgement the sender's kernel drops a connection."""
        self.tap: Callable[[SimTransport, bytes], object] | None = None
        """Hears what a program writes to a connection, before it is sent: its end, bytes."""
        self.listeners: dict[tuple[str, int], SimListener] = {}
        self.networks: dict[str, SimNetwork] = {}
        self.dark: set[str] = set()
        """Hosts without power: they answer nothing, not even a refusal."""
        self.refusing: set[str] = set()
        """Hosts that refuse connections though programs listen there, as a packet filter may."""
        self.answering: set[str] = set()
        """Hosts where something accepts connections for programs that are gone, and says nothing:
        a proxy."""
        self.on_refused: Callable[[str, str, int], object] | None = None
        """Hears of each connection that is refused: by whom it was asked for, host and port."""
        self.connections: list[SimTransport] = []
        self._sweep_at = 64
        self._links: dict[tuple[str, str], Link] = {}
        self._addresses: dict[str, str] = {}

    def address_of(self, host: str) -> str:
        """Return a host's stable IP address."""
        if host not in self._addresses:
            self._addresses[host] = f"10.0.0.{len(self._addresses) + 1}"
        return self._addresses[host]

    def resolve(self, asker: str, name: str) -> str | None:
        """Return the host a name or address means to `asker`."""
        if name in ("127.0.0.1", "localhost", "::1", "0.0.0.0", ""):  # noqa: S104 - compared # nosec B104
            return asker
        if name in self._addresses:
            return name
        for host, address in self._addresses.items():
            if address == name:
                return host
        return None

    def link(self, source: str, target: str) -> Link:
        key = (source, target)
        if key not in self._links:
            local = source == target
            base_s, jitter_s = (0.00002, 0.00001) if local else (self.base_s, self.jitter_s)
            self._links[key] = Link(source, target, base_s, jitter_s)
        return self._links[key]

    # Delivery.

    def send(self, source: str, target: str, arrive: Callable[[], None]) -> None:
        """Deliver over a link. Blocked links hold it until they are healed."""
        self.send_over(Message(self.link(source, target), self.dark, arrive))

    def send_over(self, delivery: Delivery) -> None:
        """Deliver over the link that it names."""
        link = delivery.link
        dark = self.dark
        if link.blocked or (dark and (link.target in dark or link.source in dark)):
            link.held.append(delivery)
            return
        delay = link.base_s + link.jitter_s * self._chance()
        if link.stall_chance and self._chance() < link.stall_chance:
            delay += RETRANSMIT_S
        scheduler = self.scheduler
        scheduler.push(scheduler.now + delay, delivery)

    # Faults.

    def block(self, source: str, target: str) -> None:
        """Let nothing through from one host to another (one way)."""
        self.link(source, target).blocked = True
        self.trace.record(self.scheduler.now, source, "net-block", target)

    def unblock(self, source: str, target: str) -> None:
        """Heal one direction: what was held is retransmitted in its order."""
        link = self.link(source, target)
        link.blocked = False
        self.trace.record(self.scheduler.now, source, "net-unblock", target)
        self._release(source, target)

    def block_all(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Let nothing through from the first host of each pair to the second."""
        for source, target in pairs:
            self.block(source, target)

    def unblock_all(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Heal those directions that are still blocked."""
        for source, target in pairs:
            if self.link(source, target).blocked:
                self.unblock(source, target)

    def _release(self, source: str, target: str) -> None:
        link = self.link(source, target)
        held, link.held = link.held, []
        when = self.scheduler.now + link.base_s + RETRANSMIT_S * self.random.random()
        for delivery in held:
            self.scheduler.push(when, delivery)

    def is_blocked(self, host: str) -> bool:
        """Whether any link to or from a host lets nothing through."""
        return any(link.blocked for pair, link in self._links.items() if host in pair)

    def partition(self, side_a: list[str], side_b: list[str]) -> None:
        """Block both directions between two groups of hosts."""
        for a in side_a:
            for b in side_b:
                self.block(a, b)
                self.block(b, a)

    def heal(self) -> None:
        """Unblock every link, and let it lose and delay nothing; let no host refuse connections."""
        self.refusing.clear()
        for source, target in sorted(self._links):
            link = self._links[source, target]
            link.stall_chance = 0.0
            if source != target:
                link.base_s = self.base_s
            if link.blocked:
                self.unblock(source, target)

    def reset_connections(self, host: str, other: str | None = None) -> int:
        """Reset every open connection of a host (to another host, if given); return how many."""
        hit = [
            c
            for c in self.connections
            if c.host == host and (other is None or c.peer_host == other) and not c.lost
        ]
        for transport in hit:
            transport.kernel_reset(ConnectionResetError(errno.ECONNRESET, "reset by the network"))
            if transport.peer is not None:
                transport.peer.kernel_reset(
                    ConnectionResetError(errno.ECONNRESET, "reset by the network")
                )
        return len(hit)

    def refuse(self, host: str) -> None:
        """Let a host refuse new connections of all others though its programs live."""
        self.refusing.add(host)
        self.trace.record(self.scheduler.now, host, "net-refuse")

    def accept(self, host: str) -> None:
        """Let it accept them again."""
        if host in self.refusing:
            self.refusing.discard(host)
            self.trace.record(self.scheduler.now, host, "net-accept")

    def answer_for(self, host: str) -> None:
        """Accept connections for a host's programs, which are gone, until it starts them again."""
        self.answering.add(host)
        self.trace.record(self.scheduler.now, host, "net-answer")

    def power_off(self, host: str) -> None:
        """Cut a host's power: it vanishes without a notification."""
        self.dark.add(host)

    def power_on(self, host: str) -> None:
        """Bring a host back; it knows none of its old connections."""
        self.dark.discard(host)
        if host in self.answering:
            self.answering.discard(host)
            self.reset_connections(host)
        for source, target in sorted(self._links):
            if host in (source, target) and not self._links[source, target].blocked:
                self._release(source, target)

    def host_died(self, host: str, *, silently: bool) -> None:
        """End a process: its listeners go; its connections are reset unless `silently`."""
        for key in [k for k in self.listeners if k[0] == host]:
            del self.listeners[key]
        mine = [c for c in self.connections if c.host == host]
        for transport in mine:
            transport.process_died(silently=silently)
        self.connections = [c for c in self.connections if c.host != host]

    def forget(self, transport: SimTransport) -> None:
        """Note that a connection is over; the list is swept when it has doubled."""
        del transport
        if len(self.connections) > self._sweep_at:
            self.connections = [c for c in self.connections if not c.lost]
            self._sweep_at = 2 * len(self.connections) + 64


class SimNetwork:
    """One node's Network port, for one incarnation."""

    def __init__(self, internet: Internet, host: str, loop: SimLoop) -> None:
        self.internet = internet
        self.host = host
        self.loop = loop
        self._next_port = FIRST_PORT
        internet.address_of(host)
        internet.networks[host] = self

    async def listen(
        self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> Listener:
        if self.internet.resolve(self.host, host) != self.host:
            raise OSError(errno.EADDRNOTAVAIL, f"{host} is no address of {self.host}")
        listeners = self.internet.listeners
        if port == 0:
            port = self._free_port()
        elif (self.host, port) in listeners:
            raise OSError(errno.EADDRINUSE, f"address {host}:{port} already in use")
        listener = SimListener(self, port, factory)
        listeners[self.host, port] = listener
        return listener

    def _free_port(self) -> int:
        while (self.host, self._next_port) in self.internet.listeners:
            self._next_port += 1
        self._next_port += 1
        return self._next_port - 1

    async def connect(
        self,
        host: str,
        port: int,
        factory: Callable[[], asyncio.BaseProtocol],
        *,
        timeout_s: float,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        target = self.internet.resolve(self.host, host)
        if target is None:
            raise OSError(errno.ENOENT, f"cannot resolve {host}")
        attempt = _Attempt(self, target, port)
        try:
            async with asyncio.timeout(timeout_s):
                transport = await attempt.established
        finally:
            attempt.over = True
        protocol = factory()
        transport.attach(protocol)
        return transport, protocol

    async def refuses(self, host: str, port: int, *, timeout_s: float) -> bool:
        target = self.internet.resolve(self.host, host)
        if target is None:
            return False
        attempt = _Attempt(self, target, port)
        try:
            async with asyncio.timeout(timeout_s):
                (await attempt.established).kernel_abandon()
        except ConnectionRefusedError:
            return True
        except TimeoutError:
            return False
        finally:
            attempt.over = True
        return False


class _Attempt:
    """A connection being made: SYN there, SYN-ACK or RST back."""

    def __init__(self, network: SimNetwork, target: str, port: int) -> None:
        self.network = network
        self.target = target
        self.port = port
        self.over = False
        self.established: asyncio.Future[SimTransport] = network.loop.create_future()
        self._internet = network.internet
        self._internet.send(network.host, target, self._syn)

    def _syn(self) -> None:
        internet, source, target = self._internet, self.network.host, self.target
        listener = internet.listeners.get((target, self.port))
        closed = listener is None and target not in internet.answering
        if closed or (target in internet.refusing and source != target):
            if internet.on_refused is not None:
                internet.on_refused(source, target, self.port)
            internet.send(target, source, self._refused)
            return
        if self.over or self.network.loop.dead:
            return
        owner = internet.networks[target] if listener is None else listener.network
        here, there = self._pair(owner)
        if listener is not None:
            there.accept(listener.factory)
        internet.send(target, source, lambda: self._connected(here))

    def _pair(self, owner: SimNetwork) -> tuple[SimTransport, SimTransport]:
        internet = self._internet
        client_port = self.network._free_port()  # noqa: SLF001 - one module, one network
        here_address = (internet.address_of(self.network.host), client_port)
        there_address = (internet.address_of(self.target), self.port)
        here = SimTransport(self.network.loop, internet, self.network.host, here_address)
        there = SimTransport(owner.loop, internet, self.target, there_address)
        here.peer, there.peer = there, here
        here.peer_host, there.peer_host = self.target, self.network.host
        if self.port == ZOOKEEPER_PORT:
            here.byte_s = there.byte_s = internet.costs.znode_byte_s
        here.pipe = Pipe(here, there)
        there.pipe = Pipe(there, here)
        internet.connections += [here, there]
        internet.trace.record(
            internet.scheduler.now, self.network.host, "connect", f"{self.target}:{self.port}"
        )
        return here, there

    def _connected(self, here: SimTransport) -> None:
        if self.over or self.network.loop.dead or here.lost:
            here.kernel_abandon()
        else:
            self.network.loop.call_soon(self._settle, here)

    def _settle(self, here: SimTransport) -> None:
        if self.over or self.established.done():
            here.kernel_abandon()
        else:
            self.established.set_result(here)

    def _refused(self) -> None:
        error = ConnectionRefusedError(
            errno.ECONNREFUSED, f"connect to {self.target}:{self.port} refused"
        )

        def settle() -> None:
            if not self.established.done():
                self.established.set_exception(error)

        self.network.loop.call_soon(settle)
