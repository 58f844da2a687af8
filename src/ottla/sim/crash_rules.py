"""Crash rules: who may delete a broker's registration before its session ends, and when (R17, F44).

What counts is seen from outside of the brokers: connections that the simulated network refused, and
why; who runs; the order of writes. Whoever deletes another broker's registration
- has been refused twice, `APART_S` apart, since that registration was made, by a host whose process
  was gone or whose packet filter rejects (adr/0018); silence and accepted connections are no proof;
- is the controller of the last epoch, or deletes /controller of the same session in the same multi;
- does not do it to a broker that only closed its listeners, as it stops in order.
And a process that died is gone from ZooKeeper within `PROMPT_S`, where nothing else is wrong: that
is judged where no other kind of fault is drawn, and counted everywhere.
"""

import json
from dataclasses import dataclass, field

from ottla.sim.loop import SimLoop
from ottla.sim.network import ZOOKEEPER_PORT
from ottla.sim.plans import Plan
from ottla.sim.world import Simulation
from ottla.sim.znode_rules import Write
from ottla.zookeeper.memory import MemoryZooKeeper

IDS = "/brokers/ids/"
CONTROLLER, CONTROLLER_EPOCH = "/controller", "/controller_epoch"
APART_S = 0.04
"""Between two refusals that prove that a process is gone."""
PROMPT_S = 1.5
LOOK_S = 0.1
TROUBLE_S = 3.0
"""So long after its trouble with ZooKeeper a broker that stops may have failed to say so there."""
SLOW_S = 0.01
ZOOKEEPER = "zk"
ONLY_KILLS = frozenset(("kill", "brief-kill", "bounce", "kill-all", "kill-several"))


@dataclass(slots=True)
class Span:
    """The first and the last time of something."""

    first_s: float
    last_s: float

    @property
    def proves(self) -> bool:
        return self.last_s - self.first_s >= APART_S


@dataclass(slots=True)
class Registration:
    """One broker's, while it lasts. `process` made it, through `session`."""

    session: int
    process: SimLoop
    port: int = 0
    refused: dict[str, Span] = field(default_factory=dict)
    """by whose host: since the process ended, or by a packet filter"""
    closed: dict[str, Span] = field(default_factory=dict)
    """by whose host: while the process lived, but did not listen"""
    connection: object = None
    troubled_s: float = -TROUBLE_S
    """when the broker had its last trouble with ZooKeeper"""
    ripe: tuple[object, ...] = ()
    """who is to notice that the process has ended, if anyone can"""
    ripe_s: float = 0.0
    late: bool = False

    @property
    def host(self) -> str:
        return self.process.host


class CrashRules:
    """Judges one run. `start` begins to look regularly."""

    def __init__(self, simulation: Simulation, plan: Plan) -> None:
        self._simulation = simulation
        self._internet = simulation.internet
        self._internet.on_refused = self._on_refused
        self._prompt = set(plan.faults) <= ONLY_KILLS and plan.slowness <= 1.0
        """Whether all that dies has to be noticed at once."""
        self._zookeeper: MemoryZooKeeper | None = None
        self._writer: SimLoop | None = None
        self._registrations: dict[int, Registration] = {}
        self._controller: tuple[int, SimLoop] | None = None
        """The session that made /controller, and its process."""
        self._epoch_session = -1
        self._distrusted: set[SimLoop] = set()
        """Processes that lived when their registration was removed: they are left to their session
        from then on."""
        self._unfounded: dict[int, str] = {}
        """Removals, by zxid, by someone who may do so only together with /controller."""
        self._removed: dict[int, int] = {}
        """By zxid, the session whose registration was removed."""
        self._found: list[str] = []
        self._delays_s: list[float] = []
        self._alive = 0
        self._late = 0

    # What happens.

    def wrote(self, write: Write, process: SimLoop | None, zookeeper: MemoryZooKeeper) -> None:
        """Hear of a write to ZooKeeper that is durable, and whose process made it."""
        self._zookeeper = zookeeper
        self._writer = process
        if write.path == CONTROLLER_EPOCH:
            self._epoch_session = write.session
        elif write.path == CONTROLLER:
            self._controller_wrote(write)
        elif write.path.startswith(IDS):
            broker = int(write.path.removeprefix(IDS))
            if write.op == "create":
                self._registrations[broker] = Registration(write.session, self._process())
            elif write.op == "delete" and broker in self._registrations:
                self._deregistered(write, self._registrations.pop(broker))
            if write.data and broker in self._registrations:
                (endpoint,) = json.loads(write.data)["endpoints"]
                self._registrations[broker].port = int(endpoint.rpartition(":")[2])

    def restored(self) -> None:
        """ZooKeeper forgot what it had, and knows of registrations whose processes are gone."""
        self._registrations.clear()
        self._controller = None

    def _process(self) -> SimLoop:
        """Return whose process made the present write."""
        assert self._writer is not None
        return self._writer

    def _on_refused(self, source: str, target: str, port: int) -> None:
        """Hear of a refused connection, when the host refuses it."""
        for registration in self._registrations.values():
            if registration.host == target and registration.port == port:
                gone = self._ended(registration.process) or target in self._internet.refusing
                spans = registration.refused if gone else registration.closed
                now_s = self._simulation.now
                spans.setdefault(source, Span(now_s, now_s)).last_s = now_s

    def _ended(self, process: SimLoop) -> bool:
        node = self._simulation.node(process.host)
        return process.dead or (node.loop is process and not node.up)

    def _controller_wrote(self, write: Write) -> None:
        if write.op == "create":
            self._controller = (write.session, self._process())
        elif write.op == "delete" and self._controller is not None:
            (session, process), self._controller = self._controller, None
            self._unfounded.pop(write.zxid, None)
            if write.session == session or self._process().host == process.host:
                return  # by itself, or by its own next session
            if self._removed.get(write.zxid) != session:
                self._found.append(
                    f"zxid {write.zxid}: /controller of session {session:#x} was deleted, but not "
                    "together with that broker's registration"
                )

    # What is judged.

    def _deregistered(self, write: Write, registration: Registration) -> None:
        if write.session == registration.session:
            return
        by = self._process()
        if by.host == registration.host:
            return  # its own next session (R16)
        self._removed[write.zxid] = registration.session
        ended = self._ended(registration.process)
        if ended:
            self._delays_s.append(self._simulation.now - registration.process.ended_s)
        else:
            self._alive += 1
            self._distrusted.add(registration.process)
        what = (
            f"zxid {write.zxid}: the registration of {registration.process.name} was deleted by "
            f"{by.name}"
        )
        refused = registration.refused.get(by.host)
        if refused is None or not refused.proves:
            self._without_proof(what, registration, refused, by.host)
        if write.session != self._epoch_session:
            self._unfounded[write.zxid] = f"{what}, which is not the controller of the last epoch"

    def _without_proof(
        self, what: str, registration: Registration, refused: Span | None, by: str
    ) -> None:
        self._look_at(registration)
        closed = registration.closed.get(by)
        if closed is None or not closed.proves:
            seen = "never" if refused is None else f"for {refused.last_s - refused.first_s:.3f} s"
            self._found.append(f"{what}, which was {seen} refused a connection by its host")
        elif self._simulation.now - registration.troubled_s > TROUBLE_S:
            self._found.append(f"{what} while it stopped in order")

    def wrong(self) -> list[str]:
        """Return what broke a rule, at the end of a run."""
        return [*self._found, *self._unfounded.values()]

    def statistics(self) -> dict[str, int]:
        """Return how many registrations were removed; the slowest after a death, in ms."""
        return {
            "removed": len(self._removed),
            "removed_alive": self._alive,
            "removed_max_ms": round(max(self._delays_s, default=0.0) * 1000),
            "removed_late": self._late,
        }

    # What is looked at regularly.

    def start(self) -> None:
        """Look from now on, again and again."""
        self._simulation.scheduler.after(LOOK_S, self.start)
        for registration in list(self._registrations.values()):
            self._look_at(registration)
            self._look_whether_late(registration)

    def _look_at(self, registration: Registration) -> None:
        """Note whether a broker has trouble with ZooKeeper."""
        assert self._zookeeper is not None
        host = registration.host
        connection = self._zookeeper.transport_of(registration.session)
        before, registration.connection = registration.connection, connection
        changed = before is not None and connection is not before
        if (
            connection is None
            or changed
            or self._hampered(host, ZOOKEEPER)
            or self._hampered(ZOOKEEPER, host)
            or not self._zookeeper_runs()
            or registration.process.paused
        ):
            registration.troubled_s = self._simulation.now

    def _zookeeper_runs(self) -> bool:
        listens = (ZOOKEEPER, ZOOKEEPER_PORT) in self._internet.listeners
        return listens and self._simulation.node(ZOOKEEPER).running

    def _look_whether_late(self, registration: Registration) -> None:
        ripe = self._ripe(registration)
        now_s = self._simulation.now
        if not ripe or ripe != registration.ripe:
            registration.ripe, registration.ripe_s = ripe, now_s
        elif now_s - registration.ripe_s > PROMPT_S and not registration.late:
            registration.late = True
            self._late += 1
            if self._prompt:
                self._found.append(
                    f"{registration.process.name} ended at {registration.process.ended_s:.3f}, and "
                    f"is still registered at {now_s:.3f}"
                )

    def _ripe(self, registration: Registration) -> tuple[object, ...]:
        """Return who is to notice a process's end and can; empty if no one."""
        if (
            registration.process in self._distrusted
            or not self._refuses(registration.process, registration.port)
            or not self._zookeeper_runs()
            or self._controller is None
        ):
            return ()
        host = registration.host
        session, process = self._controller
        if not process.dead:
            return (session,) if self._sees(process, host) else ()
        if not self._refuses(process, registration.port):
            return ()
        able = tuple(
            other.process.name
            for other in self._registrations.values()
            if self._sees(other.process, host) and self._sees(other.process, process.host)
        )
        return (session, *able) if able else ()

    def _refuses(self, process: SimLoop, port: int) -> bool:
        """Whether a process has ended, and its host says so."""
        if not process.dead:
            return False
        host, internet = process.host, self._internet
        silent = host in internet.dark or host in internet.answering
        return not silent and (host, port) not in internet.listeners

    def _sees(self, process: SimLoop, host: str) -> bool:
        """Whether a process runs, and reaches a host and ZooKeeper without delay."""
        own = process.host
        pairs = [(own, host), (host, own), (own, ZOOKEEPER), (ZOOKEEPER, own)]
        return not (process.dead or process.paused or any(self._hampered(*p) for p in pairs))

    def _hampered(self, source: str, target: str) -> bool:
        link = self._internet.link(source, target)
        return link.blocked or link.base_s > SLOW_S or bool(link.stall_chance)
