"""A cluster as an object, for programs and tests that are not asynchronous.

Invariants: every wait has a bound; what is wrong is an OttlaError of one line; whatever ends this
process, nothing of the cluster is left. Brokers are numbered from 1. Methods may be called from any
thread, one at a time.
"""

import contextlib
import shutil
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from ottla.explain.history import HistoryEntry, PartitionHistory
from ottla.explain.journals import Damage, find, read
from ottla.explain.rendering import unknown_partition
from ottla.explain.timestamps import time_text
from ottla.local.cluster_dir import HOST, ClusterDir, last_line
from ottla.model.cluster import LeaderAndIsr
from ottla.model.errors import ConfigError, ConnectionLostError, ErrorCode, OttlaError, StartupError
from ottla.model.ids import TopicPartition, topic_name_problem
from ottla.model.journal_schema import partition_of
from ottla.model.printable import plural
from ottla.model.properties import as_properties
from ottla.net.faults import Link
from ottla.testing.faults import Faults, Rules, Target, names
from ottla.testing.process_host import ProcessHost
from ottla.testing.requests import (
    POLL_S,
    NotKnownYetError,
    Questions,
    RefusedError,
    about,
    change,
    checked_settings,
    creation,
    defaults,
    deletion,
    sync_problem,
    until,
)
from ottla.testing.thread_host import ThreadHost
from ottla.wire.messages.cluster import MetadataResponse
from ottla.wire.messages.transactions import InitProducerIdRequest
from ottla.wire.schema import R, Request

if TYPE_CHECKING:
    from ottla.testing.schema_registry import SchemaRegistry

__tracebackhide__ = True

START_S = 60.0
WAIT_S = 30.0
ASK_S = 2.0
FAULT_S = 5.0
ADDED_WITHIN_S = 2.0
SHOWN_TOPICS = 10
MAX_BROKERS = 50
PORT_ATTEMPTS = 3


def _why(folder: Path, tp: TopicPartition) -> tuple[str, LeaderAndIsr | None]:
    """Return a partition's history as text, and its state at the end of it.

    OttlaError if no journal knows it.
    """
    history = PartitionHistory(tp)
    for entry in read(find([folder]), Damage()):
        history.take(entry)
    if not history.seen:
        raise unknown_partition(tp, history.cluster)
    part = history.cluster.part(tp)
    now = "is deleted" if part is None else f"now: {_state(part.leadership)}"
    lines = [f"{tp}  {now}"]
    lines += [_line(entry) for entry in history.entries]
    return "\n".join(lines), None if part is None else part.leadership


def _line(entry: HistoryEntry) -> str:
    change = _state(entry.after)
    if entry.before is not None and entry.before != entry.after:
        change = f"{_state(entry.before)} -> {change}"
    return f"  {time_text(entry.ts)}  controller {entry.controller}  {change}  {entry.reason}"


def _state(state: LeaderAndIsr | None) -> str:
    if state is None:
        return "nothing"
    leader = str(state.leader) if state.leader >= 0 else "none"
    in_sync = ",".join(map(str, state.isr)) or "none"
    return f"leader {leader} epoch {state.leader_epoch} in sync {in_sync}"


class _Node:
    """A broker's numbers: its id, the port for clients and the one for brokers."""

    __slots__ = ("clients_port", "id", "inner_port")

    def __init__(self, broker_id: int, clients_port: int, inner_port: int) -> None:
        self.id = broker_id
        self.clients_port = clients_port
        self.inner_port = inner_port


class SyncCluster:
    """A replicated cluster on this machine, with faults on request; a context manager.

    `brokers`: how many, 1 to 50. `settings`: any of `server.properties` for all brokers.
    `in_process`: brokers are threads of this process, not processes; they start faster. `dir`:
    where the data is, a temporary folder by default, which is removed at the end unless `keep`.
    `zookeeper`: `host:port` of one that runs. OttlaError where something cannot be. `events` has
    what was done to it: seconds since its start, and what. `faults` has how often brokers were
    killed, stopped, paused, …, by the name of the method.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        settings: Mapping[str, object] | None = None,
        in_process: bool = False,
        dir: str | Path | None = None,  # noqa: A002 - the command line's --dir
        keep: bool = False,
        zookeeper: str | None = None,
        session_timeout_ms: int = 6000,
        timeout_s: float = START_S,
    ) -> None:
        if not 0 < brokers <= MAX_BROKERS:
            raise ConfigError(f"brokers={brokers}: a cluster here has 1 to {MAX_BROKERS} brokers")
        self.in_process = in_process
        self.session_timeout_ms = session_timeout_ms
        self.events: list[tuple[float, str]] = []
        self.faults: Counter[str] = Counter()
        self._count = brokers
        self._settings = checked_settings(settings or {})
        self._dir = None if dir is None else Path(dir).absolute()
        self._keep = keep or dir is not None
        self._zookeeper = zookeeper
        self._connect = zookeeper or ""
        self._timeout_s = timeout_s
        self._began_s = time.monotonic()
        self._nodes: dict[int, _Node] = {}
        self._held: list[socket.socket] = []
        self._faults = Faults()
        self._host: ProcessHost | ThreadHost | None = None
        self._questions: Questions | None = None
        self._folder: ClusterDir | None = None
        self._registry: SchemaRegistry | None = None

    # --- life -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> None:
        """Start everything; return when every broker knows all others and a controller."""
        if self._host is not None:
            raise OttlaError("this cluster runs already")
        for attempt in range(PORT_ATTEMPTS):
            try:
                self._open()
                return
            except BaseException as error:
                self.close()
                taken = isinstance(error, StartupError) and "cannot listen" in str(error)
                if not taken or attempt == PORT_ATTEMPTS - 1:
                    raise

    def _open(self) -> None:
        if self._dir is None:
            self._folder = ClusterDir(Path(tempfile.mkdtemp(prefix="ottla-")))
        else:
            self._folder = ClusterDir(self._dir)
            self._folder.make()
            if self._zookeeper is None and self._folder.data_dir(1).exists():
                raise OttlaError(
                    f"{self._folder} has the data of a cluster that is over: what it had in its "
                    "coordination service went with it; name a folder that is empty"
                )
        folder = self._folder.path
        self._began_s = time.monotonic()
        remove = None if self._keep else folder
        if self.in_process:
            self._host = ThreadHost(remove)
        else:
            self._host = ProcessHost(folder / "fork-server.log", remove)
        self._questions = Questions()
        if self._zookeeper is None:
            port = self._hold_port()
            self._release_ports()
            self._host.start_coordination(port, folder / "zookeeper.log")
            self._connect = f"{HOST}:{port}"
        for broker in range(1, self._count + 1):
            self._nodes[broker] = _Node(broker, self._hold_port(), self._hold_port())
        self._release_ports()
        for broker in self._nodes:
            self._start(broker)
        self._wait_serving(list(self._nodes), self._timeout_s)
        self.note(f"started with {plural(self._count, 'broker')}")

    def close(self) -> None:
        """Stop everything; brokers whose data is kept stop gracefully. Closing twice is fine."""
        self.stop_schema_registry()
        host, self._host = self._host, None
        if host is not None:
            if self._keep:
                self._end_well(host)
            host.close()
        questions, self._questions = self._questions, None
        if questions is not None:
            questions.close()
        for held in self._held:
            held.close()
        self._held.clear()
        self._nodes.clear()
        self._faults.clear()
        if self._folder is not None and not self._keep:
            shutil.rmtree(self._folder.path, ignore_errors=True)

    def _end_well(self, host: ProcessHost | ThreadHost) -> None:
        living = [b for b in self._nodes if host.running(b)]
        for broker in living:
            host.resume(broker)
            host.terminate(broker)
        for broker in living:
            with contextlib.suppress(OttlaError):
                host.wait_ended(broker, WAIT_S)

    # --- what the cluster is ----------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, for `bootstrap.servers`."""
        return ",".join(f"{HOST}:{n.clients_port}" for n in self._nodes.values())

    @property
    def schema_registry_url(self) -> str:
        """The address of a schema registry over this cluster, which starts when it is asked for.

        For `schema.registry.url`; needs the extra `registry`.
        """
        self._running_host()
        if self._registry is None:
            from ottla.testing.schema_registry import SchemaRegistry

            self._registry = SchemaRegistry(self.bootstrap)
        return self._registry.url

    def stop_schema_registry(self) -> None:
        """Stop the schema registry, if it runs; what it holds is in the topic `_schemas`."""
        registry, self._registry = self._registry, None
        if registry is not None:
            registry.close()

    @property
    def zookeeper(self) -> str:
        """The address of the coordination service."""
        self._running_host()
        return self._connect

    @property
    def dir(self) -> Path:
        """The folder of data and logs: `broker-1/server.log`, `broker-1/data/`."""
        if self._folder is None:
            raise OttlaError("the cluster has not been started")
        return self._folder.path

    @property
    def broker_ids(self) -> list[int]:
        """The ids of all brokers, those that are down too."""
        return list(self._nodes)

    @property
    def age_s(self) -> float:
        """Seconds since the start, as `events` counts them."""
        return time.monotonic() - self._began_s

    def running(self, broker: int) -> bool:
        """Return whether a broker lives, paused or not."""
        return self._running_host().running(self._known(broker).id)

    def paused(self, broker: int) -> bool:
        """Return whether a broker is paused."""
        return self._running_host().paused(self._known(broker).id)

    def pid(self, broker: int) -> int:
        """Return the id of a broker's process, or of its thread where it is one."""
        return self._running_host().pid(self._known(broker).id)

    def address(self, broker: int) -> str:
        """Return the `host:port` at which clients reach a broker."""
        return f"{HOST}:{self._known(broker).clients_port}"

    def logs(self, broker: int, lines: int = 50) -> str:
        """Return the last lines that a broker has logged."""
        assert self._folder is not None
        try:
            text = self._folder.log_file(self._known(broker).id).read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def why(self, partition: str, timeout_s: float = FAULT_S) -> str:
        """Return why a partition, such as `orders-0`, has the leader and ISR that it has.

        Controllers write their journals a moment later: the newest decision that brokers know is
        waited for, for `timeout_s` at most.
        """
        tp = _partition(partition)
        deadline = time.monotonic() + timeout_s

        def known() -> bool:
            try:
                return bool(_why(self.dir, tp))
            except OttlaError:
                self._refuse_unknown(tp, deadline)
                raise

        until(known, timeout_s, f"a journal knows {tp}")
        while True:
            text, state = _why(self.dir, tp)
            with contextlib.suppress(OttlaError):
                now = self._partition(tp)
                seen = None if state is None else (state.leader_epoch, sorted(state.isr))
                if seen == (now.leader_epoch, sorted(now.isr_nodes)):
                    return text
            if time.monotonic() > deadline or not self._serving():
                return text
            time.sleep(POLL_S)

    @property
    def controller(self) -> int:
        """The id of the broker that is the controller; waits for one."""

        def find() -> int:
            named = Counter(int(view.controller_id) for _, view in self._views([]))
            found = named.most_common(1)[0][0]
            return found if found in self._nodes and self.running(found) else 0

        return until(find, WAIT_S, "there is a controller")

    def leader_of(self, partition: str, timeout_s: float = WAIT_S) -> int:
        """Return the broker that leads a partition, such as `orders-0`; waits for one that runs.

        OttlaError at once if there is no such topic.
        """
        tp = _partition(partition)
        deadline = time.monotonic() + timeout_s

        def find() -> int:
            try:
                leader = int(self._partition(tp).leader_id)
            except NotKnownYetError:
                self._refuse_unknown(tp, deadline)
                raise
            return leader if leader in self._nodes and self.running(leader) else 0

        return until(find, timeout_s, f"{tp} has a leader")

    def partitions(self) -> list[str]:
        """Return all partitions, such as `orders-0`, but those of Kafka's internal topics."""
        for broker in self._serving():
            with contextlib.suppress(ConnectionLostError):
                topics = self._ask(broker, about(None)).topics
                return sorted(
                    f"{topic.name}-{part.partition_index}"
                    for topic in topics
                    if not topic.is_internal
                    for part in topic.partitions
                )
        raise OttlaError("no broker serves")

    def isr_of(self, partition: str) -> list[int]:
        """Return the replicas in sync of a partition, such as `orders-0`, sorted."""
        return sorted(map(int, self._partition(_partition(partition)).isr_nodes))

    def replicas_of(self, partition: str) -> list[int]:
        """Return the replicas of a partition, the preferred leader first."""
        return list(map(int, self._partition(_partition(partition)).replica_nodes))

    def wait_until_in_sync(self, timeout_s: float = WAIT_S) -> None:
        """Wait until every partition has a leader and all its replicas are in sync."""
        problem = ""

        def whole() -> bool:
            nonlocal problem
            for broker in self._serving():
                problem = sync_problem(self._ask(broker, about(None)))
                if problem:
                    return False
            return True

        until(whole, timeout_s, lambda: f"all is in sync: {problem}")

    def prepare_producer_ids(self, timeout_s: float = FAULT_S) -> None:
        """Have every broker that serves fetch ids for idempotent producers from the controller.

        A broker that has run for a while has them. One that has not, and is then separated from the
        controller, keeps new producers waiting.
        """
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)

        def prepared() -> bool:
            return not any(self._ask(b, request, timeout_s).error_code for b in self._serving())

        until(prepared, timeout_s, "brokers have producer ids")

    # --- topics -----------------------------------------------------------------------------

    def create_topic(
        self,
        /,
        name: str,
        partitions: int = 1,
        replicas: int | None = None,
        *,
        timeout_s: float = WAIT_S,
        **configs: object,
    ) -> None:
        """Create a topic and wait until every broker knows its leaders.

        `replicas`: by default one on each broker, three at most. `configs`: topic settings, with
        `_` for `.`: `min_insync_replicas=2`. OttlaError if the cluster refuses it.
        """
        count = min(3, self._count) if replicas is None else replicas
        request = creation(name, partitions, count, configs, timeout_s)

        def create(left_s: float) -> Any:
            return self._ask(self.controller, request, left_s).topics[0]

        made = ErrorCode.TOPIC_ALREADY_EXISTS
        change(create, made, timeout_s, f"topic {name}", "created")
        until(lambda: self._known_to_all(name, partitions), timeout_s, f"all know {name}")

    def delete_topic(self, name: str, timeout_s: float = WAIT_S) -> None:
        """Delete a topic and wait until no broker knows it; OttlaError if it is refused."""

        def delete(left_s: float) -> Any:
            return self._ask(self.controller, deletion(name, timeout_s), left_s).responses[0]

        gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        change(delete, gone, timeout_s, f"topic {name}", "deleted")
        until(lambda: self._forgotten(name), timeout_s, f"no broker knows {name}")

    def _forgotten(self, topic: str) -> bool:
        """Return whether no broker knows a topic, and its name is free."""
        request = creation(topic, 1, 1, {}, ASK_S, validate_only=True)
        (result,) = self._ask(self.controller, request).topics
        return not result.error_code and all(
            found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for broker in self._serving()
            for found in self._ask(broker, about([topic])).topics
        )

    def _known_to_all(self, topic: str, partitions: int) -> bool:
        for broker in self._serving():
            (found,) = self._ask(broker, about([topic])).topics
            led = [p for p in found.partitions if p.leader_id >= 0]
            if len(led) < partitions:
                return False
        return True

    # --- what happens to brokers ------------------------------------------------------------

    def kill(self, broker: int, timeout_s: float = FAULT_S) -> None:
        """End a broker as kill -9 does (SIGKILL)."""
        host = self._must_run(broker)
        host.kill(broker, timeout_s)
        self._note_fault("kill", f"killed broker {broker}")

    def stop(self, broker: int, timeout_s: float = WAIT_S) -> None:
        """Stop a broker gracefully (SIGTERM): it hands its leaders over first."""
        host = self._must_run(broker)
        host.terminate(broker)
        host.wait_ended(broker, timeout_s)
        self._note_fault("stop", f"stopped broker {broker}")

    def start(self, broker: int, timeout_s: float = START_S) -> None:
        """Start a broker that is down; return when it serves and the others know it."""
        if self.running(broker):
            raise OttlaError(f"broker {broker} runs already")
        self._start(broker)
        self._wait_serving([broker], timeout_s)
        self.note(f"started broker {broker}")

    def restart(self, broker: int, timeout_s: float = START_S) -> None:
        """Stop a broker gracefully and start it again."""
        self.stop(broker, timeout_s)
        self.start(broker, timeout_s)

    def pause(self, broker: int, timeout_s: float = FAULT_S) -> None:
        """Pause a broker (SIGSTOP): it keeps its connections and does not respond."""
        host = self._must_run(broker)
        if not host.paused(broker):
            host.pause(broker, timeout_s)
        self._note_fault("pause", f"paused broker {broker}")

    def resume(self, broker: int, timeout_s: float = FAULT_S) -> None:
        """Resume a paused broker (SIGCONT)."""
        host = self._must_run(broker)
        host.resume(broker)
        host.apply(broker, self._rules(broker), timeout_s)
        self.note(f"resumed broker {broker}")

    def add_broker(self, timeout_s: float = START_S) -> int:
        """Start one more broker; return its id."""
        self._running_host()
        broker = max(self._nodes) + 1
        self._nodes[broker] = _Node(broker, self._hold_port(), self._hold_port())
        self._release_ports()
        self._start(broker)
        self._wait_serving([broker], timeout_s)
        self.note(f"added broker {broker}")
        return broker

    # --- faults -----------------------------------------------------------------------------

    def partition(
        self,
        broker: int,
        from_: Target | Iterable[Target] = "all",
        *,
        how: Literal["drop", "cut"] = "drop",
        timeout_s: float = FAULT_S,
    ) -> None:
        """Separate a broker from others until `heal`, in both directions.

        `from_`: ids of brokers, `brokers`, `clients`, `zookeeper`, or `all` of them. `how`: `drop`
        lets nothing through, as a network that has lost its way; `cut` ends the connections.
        """
        self._fault(broker, from_, Link(how), timeout_s)
        self._note_fault("partition", f"partitioned broker {broker} from {names(from_)} ({how})")

    def slow(
        self,
        broker: int,
        delay_s: float = 0.2,
        from_: Target | Iterable[Target] = "all",
        *,
        timeout_s: float = FAULT_S,
    ) -> None:
        """Have every response between a broker and others take `delay_s` longer, until `heal`."""
        if delay_s <= 0:
            raise ConfigError(f"delay_s={delay_s}: a delay is more than 0 s")
        self._fault(broker, from_, Link("slow", delay_s), timeout_s)
        self._note_fault("slow", f"slowed broker {broker} by {delay_s:g} s for {names(from_)}")

    def disk_full(self, broker: int, timeout_s: float = FAULT_S) -> None:
        """Have no file of a broker grow (ENOSPC) until `heal`.

        As with Kafka, a broker whose only log dir fails ends; `start` it after `heal`.
        """
        self._must_run(broker)
        self._faults.full.add(broker)
        self._apply({broker}, timeout_s)
        self._note_fault("disk_full", f"filled the disk of broker {broker}")

    def heal(self, timeout_s: float = FAULT_S) -> None:
        """End all partitions, delays and full disks. Paused and dead brokers stay as they are."""
        self._running_host()
        self._faults.clear()
        self._apply(set(self._nodes), timeout_s)
        self.note("healed network and disks")

    def _fault(
        self, broker: int, from_: Target | Iterable[Target], link: Link, timeout_s: float
    ) -> None:
        self._must_run(broker)
        touched = self._faults.add(broker, from_, link, self._nodes)
        self._apply(touched, timeout_s)

    def _rules(self, broker: int) -> Rules:
        addresses = {n.id: f"{HOST}:{n.inner_port}" for n in self._nodes.values()}
        return self._faults.rules(broker, addresses, self._connect)

    def _apply(self, brokers: set[int], timeout_s: float) -> None:
        host = self._running_host()
        for broker in brokers:
            # A paused one hears of it when it goes on, a dead one when it starts.
            if host.running(broker) and not host.paused(broker):
                try:
                    host.apply(broker, self._rules(broker), timeout_s)
                except OttlaError:
                    if host.running(broker):
                        raise

    # --- inside -----------------------------------------------------------------------------

    def _hold_port(self) -> int:
        """Return a port that no other program is given as long as the cluster lives.

        On Linux a bound socket that does not listen leaves the port to a broker, which binds it
        with SO_REUSEADDR, and to none that asks for any port, also for a connection.
        """
        held = socket.socket(socket.AF_INET)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((HOST, 0))
        self._held.append(held)
        return int(held.getsockname()[1])

    def _release_ports(self) -> None:
        if sys.platform != "linux":  # two sockets cannot have one port there
            for held in self._held:
                held.close()
            self._held.clear()

    def _start(self, broker: int) -> None:
        host = self._running_host()
        assert self._folder is not None
        node = self._nodes[broker]
        file = self._folder.properties_file(broker)
        file.parent.mkdir(parents=True, exist_ok=True)
        own = {
            "broker.id": str(broker),
            "listeners": (
                f"PLAINTEXT://{HOST}:{node.clients_port},BROKERS://{HOST}:{node.inner_port}"
            ),
            "log.dirs": str(self._folder.data_dir(broker)),
            "zookeeper.connect": self._connect,
            "zookeeper.session.timeout.ms": str(self.session_timeout_ms),
        }
        properties = {**defaults(self._count), **own, **self._settings}
        file.write_text(as_properties(properties), encoding="ascii")
        log = self._folder.log_file(broker)
        host.start_broker(broker, file, log, node.clients_port, self._rules(broker))

    def _wait_serving(self, brokers: list[int], timeout_s: float) -> None:
        """Wait until these brokers and all others that serve list each other and a controller."""
        missing = ""
        asked = 0

        def all_known() -> bool:
            nonlocal asked, missing
            host = self._running_host()
            for broker in brokers:
                if not host.running(broker):
                    raise StartupError(f"broker {broker} ended at once: {self._last_words(broker)}")
            wanted = set(self._serving()) | set(brokers)
            for broker in sorted(wanted):
                asked = broker
                missing = f"broker {broker} responds"
                found = self._ask(broker, about([]))
                listed = {int(b.node_id) for b in found.brokers}
                missing = f"broker {broker} knows {sorted(wanted - listed)} and a controller"
                if found.controller_id not in listed or not wanted <= listed:
                    return False
            return True

        until(
            all_known,
            timeout_s,
            lambda: f"{missing}; the last line of its log: {self._last_words(asked)}",
        )

    def _last_words(self, broker: int) -> str:
        assert self._folder is not None
        line = last_line(self._folder.log_file(broker)).removeprefix("ottla broker: ")
        return line or "its log is empty"

    def _serving(self) -> list[int]:
        """Return the brokers that live and are not paused."""
        host = self._running_host()
        return [b for b in self._nodes if host.running(b) and not host.paused(b)]

    def _ask(self, broker: int, message: Request[R], timeout_s: float = ASK_S) -> R:
        assert self._questions is not None, "the cluster runs"
        return self._questions.ask(self._nodes[broker].inner_port, message, timeout_s)

    def _views(self, topics: list[str]) -> list[tuple[int, MetadataResponse]]:
        """Return what the brokers that are least cut off say, by broker; the controller first."""
        request = about(topics)
        last = ConnectionLostError("no broker serves")
        found: list[tuple[int, MetadataResponse]] = []
        serving = sorted(self._serving(), key=self._faults.cut_off)
        for broker in serving:
            if found and self._faults.cut_off(broker) > self._faults.cut_off(found[0][0]):
                break  # it may not know what has happened since
            try:
                found.append((broker, self._ask(broker, request)))
            except ConnectionLostError as error:
                last = error
        if not found:
            raise last
        return sorted(found, key=lambda view: view[1].controller_id != view[0])

    def _partition(self, tp: TopicPartition) -> Any:
        """Return a partition's newest state that a broker knows."""
        views = self._views([tp.topic])
        found = [
            part
            for _, view in views
            for topic in view.topics
            for part in topic.partitions
            if part.partition_index == tp.partition
        ]
        if not found:
            raise NotKnownYetError(f"brokers know no partition {tp}; {self._topics_there()}")
        return max(found, key=lambda part: int(part.leader_epoch))

    def _refuse_unknown(self, tp: TopicPartition, deadline: float) -> None:
        """Raise an error for which waiting is no use if there is no such topic or partition."""
        if topic_name_problem(tp.topic) or self._forgotten(tp.topic):
            raise RefusedError(f"topic {tp.topic} does not exist; {self._topics_there()}")
        # A broker may not know yet of partitions that were just added.
        until(
            lambda: f"{tp}" in self.partitions(),
            max(0.0, min(ADDED_WITHIN_S, deadline - time.monotonic())),
            f"topic {tp.topic} has a partition {tp.partition}",
            refused=True,
        )

    def _topics_there(self) -> str:
        """Return which topics there are, as the end of an error."""
        topics = sorted({p.rpartition("-")[0] for p in self.partitions()})
        more = f" and {len(topics) - SHOWN_TOPICS} more" if len(topics) > SHOWN_TOPICS else ""
        return f"there are {', '.join(topics[:SHOWN_TOPICS]) or 'no topics'}{more}"

    def _known(self, broker: int) -> _Node:
        if broker not in self._nodes:
            there = ", ".join(map(str, self._nodes)) or "none: the cluster does not run"
            raise OttlaError(f"no broker {broker}; there are {there}")
        return self._nodes[broker]

    def _must_run(self, broker: int) -> ProcessHost | ThreadHost:
        host = self._running_host()
        if not host.running(self._known(broker).id):
            raise OttlaError(f"broker {broker} does not run; start it first")
        return host

    def _running_host(self) -> ProcessHost | ThreadHost:
        if self._host is None:
            raise OttlaError("the cluster does not run; use it as a context manager")
        return self._host

    def _note_fault(self, method: str, what: str) -> None:
        self.faults[method] += 1
        self.note(what)

    def note(self, what: str) -> None:
        """Add an entry to `events`."""
        self.events.append((self.age_s, what))


def _partition(text: str) -> TopicPartition:
    try:
        return partition_of(text)
    except ValueError as error:
        raise OttlaError(f"{error}") from error
