"""The hostile proof: clients without credentials, one kind at a time, against a real broker.

A broker process runs with limits on memory (RLIMIT_AS) and descriptors (RLIMIT_NOFILE). In a
process of its own a well-behaved producer (acks=all) and consumer go on all the time. Faults of
docs/RELIABILITY.md, F28 to F35 and F45 to F47:

bombs      many batches in one request that decompress to much, in each codec, and many records that
           are all shaped differently
giant      one batch of as many bytes as a request may have
announced  frames that are announced with 100 MiB and of which 70 KB come; beside them one of 200 KB
trickles   frames of which a few bytes come at a time
idle       connections that say nothing, from several addresses
storm      connections made and dropped as fast as they can be
readers    clients that ask for cold records and never read the answers
deletion   a topic of 20 GiB is deleted, of which as much as fits is in the page cache
descriptors  1,100 connections at 1,024 descriptors

For each case it prints the longest stall of the broker's event loop before and during it (the next
larger of the bounds that the broker counts by), the peak of its memory above what it was before,
and the others' 99th percentiles before and during it.
    python tests/proofs/hostile_proof.py [--only bombs idle] [--short]
Exit status 0 only if every bound held and nothing that was acknowledged is missing.
"""

import argparse
import json
import os
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from ottla.wire.codec import decode_response, encode_request
from ottla.wire.compression import CODEC_NAMES
from ottla.wire.headers import decode_response_header, encode_request_header, frame
from ottla.wire.messages.records import FetchRequest, ProduceRequest
from ottla.wire.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from ottla.wire.records import Record, build_batch, iter_batches, iter_records
from support.cluster import OttlaCluster  # tests are no package
from support.waiting import waited_s

MIB = 1 << 20
STALL_MS = 100
MEMORY_MIB = 64
SLOWER = 2.0
FLOOR_MS = 10.0
"""Percentiles below this count as this: a busy machine makes them differ by more than a factor."""
HELD_S = 5.0
"""So long, at least, are announced frames kept open: whoever has to wait for them waits as long."""


class Wire:
    """One connection, spoken by hand."""

    def __init__(self, port: int, *, source: str = "127.0.0.1", timeout_s: float = 60.0) -> None:
        self.socket = socket.create_connection(
            ("127.0.0.1", port), timeout_s, source_address=(source, 0)
        )
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._number = 0

    def packed(self, message: Any, version: int) -> bytes:
        self._number += 1
        header = encode_request_header(message.API_KEY, version, self._number, "hostile")
        return b"".join(frame(header, encode_request(message, version)))

    def ask(self, message: Any, version: int) -> Any:
        self.socket.sendall(self.packed(message, version))
        (size,) = struct.unpack(">i", self._read(4))
        data = memoryview(self._read(size))
        _, at = decode_response_header(message.API_KEY, version, data)
        return decode_response(message.API_KEY, version, data, at)

    def _read(self, count: int) -> bytes:
        got = bytearray()
        while len(got) < count:
            part = self.socket.recv(min(MIB, count - len(got)))
            if not part:
                raise EOFError("the broker closed the connection")
            got += part
        return bytes(got)

    def close(self) -> None:
        self.socket.close()


def produce_request(topic: str, batches: list[tuple[int, bytes]], acks: int = -1) -> ProduceRequest:
    r = ProduceRequest
    data = [r.PartitionProduceData(index=index, records=raw) for index, raw in batches]
    topics = [r.TopicProduceData(name=topic, partition_data=data)]
    return r(acks=acks, timeout_ms=30_000, topic_data=topics)


def fetch_request(topic: str, index: int, offset: int = 0) -> FetchRequest:
    r = FetchRequest
    part = r.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=50 * MIB)
    topics = [r.FetchTopic(topic=topic, partitions=[part])]
    return r(replica_id=-1, max_wait_ms=300, min_bytes=1, max_bytes=50 * MIB, topics=topics)


def create(wire: Wire, name: str, partitions: int, **configs: str) -> None:
    r = CreateTopicsRequest
    settings = [
        r.CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()
    ]
    wanted = r.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, configs=settings
    )
    answer = wire.ask(r(timeout_ms=30_000, topics=[wanted]), 5)
    assert [t.error_code for t in answer.topics] == [0], answer


# --- the well-behaved neighbour, a process of its own -------------------------------------------


def neighbour(port: int, topic_name: str, size: int) -> None:
    """Produce and consume until stdin ends; answer each line there with what was measured."""
    producer, consumer = Wire(port), Wire(port)
    times: dict[str, list[float]] = {"produce": [], "consume": []}
    awaited: dict[str, float] = {}
    """since when a response is awaited: who gets none has waited, too"""
    acked: list[tuple[int, int]] = []
    read: dict[int, int] = {}
    stop = threading.Event()
    failures: list[str] = []

    def timed(name: str, wire: Wire, request: Any, version: int) -> Any:
        began = awaited[name] = time.perf_counter()
        answer = wire.ask(request, version)
        times[name].append(time.perf_counter() - began)
        awaited.pop(name)
        return answer

    def produce() -> None:
        number = 0
        while not stop.is_set():
            value = b"%010d" % number + os.urandom(size)
            raw = build_batch([Record(timestamp=int(time.time() * 1000), value=value)])
            answer = timed("produce", producer, produce_request(topic_name, [(0, raw)]), 9)
            told = answer.responses[0].partition_responses[0]
            if told.error_code:
                failures.append(f"produce: error {told.error_code}")
            else:
                acked.append((told.base_offset, number))
            number += 1
            time.sleep(0.005)

    def consume() -> None:
        offset = 0
        # The producer ends first: what it was told last is to be read, too.
        while threads[0].is_alive() or (acked and offset <= acked[-1][0]):
            answer = timed("consume", consumer, fetch_request(topic_name, 0, offset), 11)
            for topic in answer.responses:
                for part in topic.partitions:
                    data = bytes(part.records or b"")
                    for place, _ in iter_batches(data, allow_partial=True):
                        for record in iter_records(data, place):
                            if record.offset >= offset:
                                read[record.offset] = int(bytes(record.value or b"")[:10])
                                offset = record.offset + 1

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - told to the proof, which fails
                failures.append(f"{work.__name__}: {error!r}")

        return run

    threads = [threading.Thread(target=guarded(work)) for work in (produce, consume)]
    for thread in threads:
        thread.start()
    for line in sys.stdin:
        told = {}
        for name, seconds in times.items():
            values = list(seconds)
            seconds.clear()
            if name in awaited:
                values.append(time.perf_counter() - awaited[name])
            values = sorted(values) or [0.0]
            told[name] = [round(1000 * values[int(len(values) * at)], 2) for at in (0.5, 0.99)]
            told[f"{name}_count"] = [len(values)]
        if line.strip() == "end":
            stop.set()
            for thread in threads:
                thread.join(60)
            told["missing"] = [n for at, n in acked if read.get(at) != n][:5]
            told["acked"] = [len(acked)]
        told["failures"] = failures
        print(json.dumps(told), flush=True)


class Neighbour:
    """The other end of `neighbour`."""

    def __init__(self, port: int, topic: str, size: int = 100) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--neighbour", str(port), topic, str(size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def told(self, line: str = "now") -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def end(self) -> dict[str, Any]:
        last = self.told("end")
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)
        return last

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)


# --- the broker ---------------------------------------------------------------------------------


class LimitedCluster(OttlaCluster):
    """One broker, with limits on memory and descriptors, whose metrics can be read."""

    def __init__(self, folder: Path, *, descriptors: int, memory_mib: int, **settings: str) -> None:
        super().__init__(
            folder,
            1,
            offsets_topic_replication_factor="1",
            transaction_state_log_replication_factor="1",
            transaction_state_log_min_isr="1",
            **settings,
        )
        self._limits = descriptors, memory_mib * MIB

    def command(self, broker: int, config: Path) -> list[str]:
        return [*super().command(broker, config), "--metrics-socket", str(self.folder / "m.sock")]

    def launch(self, broker: int, config: Path) -> subprocess.Popen[bytes]:
        descriptors, memory = self._limits

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

        with self.log(broker).open("ab") as out:
            return subprocess.Popen(
                self.command(broker, config),
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=limit,  # noqa: PLW1509 - no other thread runs here
            )

    def metrics(self) -> dict[str, dict[str, Any]]:
        with socket.socket(socket.AF_UNIX) as page:
            page.settimeout(60)
            page.connect(str(self.folder / "m.sock"))
            parts = []
            while part := page.recv(1 << 16):
                parts.append(part)
        return json.loads(b"".join(parts))

    def late_counts(self) -> dict[int, int]:
        time.sleep(1.1)  # the page is up to a second old
        figures = self.metrics()["ottla:type=EventLoop,name=LatenessMs"]
        prefix = "CountFrom"
        return {int(k[len(prefix) :]): v for k, v in figures.items() if k.startswith(prefix)}

    def rss_kib(self, what: str = "VmRSS") -> int:
        status = Path(f"/proc/{self.pid(0)}/status").read_text()
        return int(next(x for x in status.splitlines() if x.startswith(what)).split()[1])

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid(0)}/clear_refs").write_text("5")


@dataclass
class Outcome:
    """What one case showed."""

    name: str
    stalled_before_ms: int = 0
    stalled_ms: int = 0
    grew_mib: float = 0.0
    before: dict[str, Any] = field(default_factory=dict)
    during: dict[str, Any] = field(default_factory=dict)
    notes: str = ""
    wrong: list[str] = field(default_factory=list)

    def line(self) -> str:
        p99 = " ".join(
            f"{what} p99 {self.before[what][1]:.1f}→{self.during[what][1]:.1f} ms"
            for what in ("produce", "consume")
        )
        verdict = "; ".join(self.wrong) or "held"
        return (
            f"{self.name:18s} stall {self.stalled_before_ms}→{self.stalled_ms} ms  "
            f"+{self.grew_mib:.0f} MiB  {p99}  "
            f"{self.notes}  {verdict}"
        )


LATE_BOUNDS = (10, 20, 30, 50, 70, 100, 150, 200, 300, 500, 1000, 2000, 5000, 10_000, 1 << 30)


def bound_of(before: dict[int, int], after: dict[int, int]) -> int:
    """Return the bound that the longest stall between two looks stayed below, in milliseconds."""
    worst = max((bound for bound in after if after[bound] > before[bound]), default=0)
    return next(bound for bound in LATE_BOUNDS if bound > worst)


@dataclass
class Proof:
    """A broker, and what is done to it."""

    cluster: LimitedCluster
    quiet_s: float
    scale: float

    @property
    def port(self) -> int:
        return self.cluster.ports[0]

    def run(
        self,
        name: str,
        attack: Callable[[], str],
        *,
        neighbour_size: int = 100,
        p99: bool = False,
        memory: bool = True,
        stall_ms: int = STALL_MS,
    ) -> Outcome:
        outcome = Outcome(name)
        topic = "beside-" + name.replace(" ", "-")
        wire = Wire(self.port)
        create(wire, topic, 1)
        wire.close()
        time.sleep(0.5)
        beside = Neighbour(self.port, topic, neighbour_size)
        try:
            time.sleep(1.0)
            beside.told()
            quiet = self.cluster.late_counts()
            time.sleep(self.quiet_s)
            outcome.before = beside.told()
            counts = self.cluster.late_counts()
            outcome.stalled_before_ms = bound_of(quiet, counts)
            self.cluster.forget_peak()
            base = self.cluster.rss_kib()
            beside.told()
            waited = waited_s(self.cluster.pid(0))
            outcome.notes = attack()
            outcome.during = beside.told()
            outcome.grew_mib = (self.cluster.rss_kib("VmHWM") - base) / 1024
            after = self.cluster.late_counts()
            outcome.stalled_ms = bound_of(counts, after)
            waited = waited_s(self.cluster.pid(0)) - waited
            last = beside.end()
        except BaseException:
            beside.kill()
            raise
        wrong = outcome.wrong
        # Where the machine itself stalls everybody, that much is not the case's doing.
        if self.scale <= 0.1:  # a slice, on a busy machine
            stall_ms = 10 * stall_ms + int(1000 * max(0.0, waited))
        if outcome.stalled_ms > max(stall_ms, outcome.stalled_before_ms):
            wrong.append(f"the loop stalled for more than {stall_ms} ms")
        if memory and outcome.grew_mib > MEMORY_MIB:
            wrong.append(f"memory grew by more than {MEMORY_MIB} MiB")
        if p99:
            allowed = SLOWER * max(outcome.before["produce"][1], FLOOR_MS)
            # A slice runs on busy machines; one that waits for the others to end waits longer.
            allowed = allowed if self.scale > 0.1 else max(allowed, HELD_S * 500)
            if outcome.during["produce"][1] > allowed:
                wrong.append(f"the producer's p99 is more than {allowed:.0f} ms")
        wrong += last["failures"]
        if last["missing"]:
            wrong.append(f"acknowledged and not read: {last['missing']}")
        offline = "kafka.log:type=LogManager,name=OfflineLogDirectoryCount"
        if self.cluster.metrics()[offline]["Value"]:
            wrong.append("a log dir is offline")
        return outcome

    # The attacks: each returns a word on what it did.

    def bombs(self, codec: int, kind: str) -> Callable[[], str]:
        topic = f"bombs-{codec}-{kind}"
        count = max(5, int(50 * self.scale))
        if kind == "zeros":
            raw = build_batch([Record(timestamp=1, value=bytes(60 * MIB))], codec=codec)
        else:
            shapes = [Record(timestamp=1, value=bytes(i * i % 7)) for i in range(150_000)]
            raw = build_batch(shapes, codec=codec)
        wire = Wire(self.port, timeout_s=300)
        create(wire, topic, count, max_message_bytes=str(max(2 * MIB, len(raw) + 1000)))

        def attack() -> str:
            if count * len(raw) > 90 * MIB:
                picked = list(range(90 * MIB // len(raw)))
            else:
                picked = list(range(count))
            answer = wire.ask(produce_request(topic, [(p, raw) for p in picked]), 9)
            wire.close()
            codes = Counter(p.error_code for t in answer.responses for p in t.partition_responses)
            return f"{len(picked)} of {len(raw)} bytes, codes {dict(codes)}"

        return attack

    def giant(self) -> str:
        wire = Wire(self.port)
        create(wire, "giant", 1, max_message_bytes=str(100 * MIB))
        size = int(90 * MIB * max(self.scale, 0.3))
        raw = build_batch([Record(timestamp=1, value=os.urandom(1000) * (size // 1000))])
        answer = wire.ask(produce_request("giant", [(0, raw)]), 9)
        wire.close()
        code = answer.responses[0].partition_responses[0].error_code
        assert code == 0, code
        return f"{len(raw) // MIB} MiB in one batch"

    def hold(self, sockets: list[socket.socket], seconds: float, piece: bytes = b"") -> None:
        """Keep connections open for a while, with a few bytes now and then."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            if piece:
                for one in sockets:
                    with suppress(OSError):
                        one.send(piece)
            time.sleep(0.1)
        for one in sockets:
            one.close()

    def announced(self) -> str:
        held = []
        for _ in range(int(200 * max(self.scale, 0.3))):
            one = socket.create_connection(("127.0.0.1", self.port))
            one.sendall(struct.pack(">i", 100 * MIB) + bytes(70_000))
            held.append(one)
        count = len(held)
        self.hold(held, max(HELD_S, 3 + 7 * self.scale))
        return f"{count} frames of 100 MiB announced"

    def trickles(self) -> str:
        held = []
        for number in range(int(300 * max(self.scale, 0.3))):
            one = socket.create_connection(("127.0.0.1", self.port))
            one.setblocking(False)
            one.send(struct.pack(">i", (100 * MIB, 500_000, 1000)[number % 3]) + b"\0\0")
            held.append(one)
        count = len(held)
        self.hold(held, 3 + 12 * self.scale, bytes(1800))
        return f"{count} frames, 18 kB/s each"

    def idle(self) -> str:
        wanted = int(10_000 * self.scale)
        held, made = [], 0
        for number in range(wanted):
            with suppress(OSError):
                one = socket.socket()
                one.settimeout(5)
                one.bind((f"127.0.0.{2 + number // 900}", 0))
                one.connect(("127.0.0.1", self.port))
                held.append(one)
                made += 1
        self.hold(held, 3.0)
        return f"{made} connections"

    def storm(self) -> str:
        until_s = time.monotonic() + 3 + 7 * self.scale
        made = 0
        while time.monotonic() < until_s:
            with suppress(OSError):
                one = socket.create_connection(("127.0.0.1", self.port), 5)
                one.sendall(b"\0\0\0\x0a\0\x12\0\0")
                one.close()
                made += 1
        return f"{made} connections"

    def readers(self) -> Callable[[], str]:
        wire = Wire(self.port)
        create(wire, "cold", 8)
        raw = build_batch([Record(timestamp=1, value=os.urandom(900_000))])
        for index in range(8):
            for _ in range(20):
                wire.ask(produce_request("cold", [(index, raw)], 1), 9)
        wire.close()
        # Restarted, so that nothing is in the broker's own memory.
        self.cluster.terminate(0)
        self.cluster.start_broker(0)
        time.sleep(1.0)

        def attack() -> str:
            held = []
            for number in range(int(300 * max(self.scale, 0.5))):
                one = socket.socket()
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                one.connect(("127.0.0.1", self.port))
                request = Wire.packed(_Numbered(), fetch_request("cold", number % 8), 11)
                one.sendall(request * 3)
                held.append(one)
            count = len(held)
            self.hold(held, 3 + 7 * self.scale)
            return f"{count} readers"

        return attack

    def deletion(self) -> Callable[[], str]:
        """Have a topic whose closed segments are filled up by hand: they are not looked into."""
        gib = 20 if self.scale >= 1 else 1
        wire = Wire(self.port)
        create(wire, "large", gib, segment_bytes=str(MIB))
        raw = build_batch([Record(timestamp=1, value=os.urandom(900_000))])
        for index in range(gib):
            for _ in range(2):
                wire.ask(produce_request("large", [(index, raw)], 1), 9)
        wire.close()
        self.cluster.terminate(0)
        folders = sorted(self.cluster.folder.glob("**/large-*/"))
        assert len(folders) == gib, folders
        block = os.urandom(8 * MIB)
        for folder in folders:
            closed, _ = sorted(folder.glob("*.log"))
            with closed.open("ab", buffering=0) as file:
                while file.tell() < 1024 * MIB:
                    file.write(block)
                os.fsync(file.fileno())
        self.cluster.start_broker(0)
        time.sleep(1.0)

        def attack() -> str:
            wire = Wire(self.port)
            answer = wire.ask(DeleteTopicsRequest(topic_names=["large"], timeout_ms=30_000), 5)
            wire.close()
            assert [t.error_code for t in answer.responses] == [0], answer
            give_up_s = time.monotonic() + 120
            while any(self.cluster.folder.glob("**/large-*/")):
                assert time.monotonic() < give_up_s, "the folders are not gone"
                time.sleep(0.2)
            return f"{gib} GiB deleted"

        return attack

    def descriptors(self) -> str:
        held = []
        for number in range(1100):
            with suppress(OSError):
                one = socket.socket()
                one.settimeout(5)
                one.bind((f"127.0.0.{2 + number // 300}", 0))
                one.connect(("127.0.0.1", self.port))
                held.append(one)
        time.sleep(6.0)  # checkpoints are written every five seconds
        open_now = self.cluster.metrics()
        listener = "kafka.server:type=socket-server-metrics,listener=PLAINTEXT,networkProcessor=0"
        count = open_now[listener]["connection-count"]
        self.hold(held, 0.0)
        assert count < 1024, count
        said = self.cluster.log(0).read_text().count("connections refused")
        assert 1 <= said <= 3, f"refusals were said {said} times"
        return f"{count} of 1,100 let in"


class _Numbered:
    """Stands for a connection where a request is only packed."""

    _number = 0


CASES = (
    "bombs", "giant", "announced", "trickles", "storm", "readers", "deletion", "idle",
    "descriptors",
)  # fmt: skip


def outcomes(folder: Path, only: list[str], scale: float, quiet_s: float) -> list[Outcome]:
    """Run the cases; the last one on a broker with few descriptors."""
    found: list[Outcome] = []

    def add(outcome: Outcome) -> None:
        found.append(outcome)
        print(outcome.line(), flush=True)

    def prepared(name: str, descriptors: int, **settings: str) -> LimitedCluster:
        settings["log_segment_delete_delay_ms"] = "1000"
        return LimitedCluster(folder / name, descriptors=descriptors, memory_mib=3072, **settings)

    usual = [case for case in CASES if case in only and case != "descriptors"]
    if usual:
        few = scale <= 0.1  # a slice: one broker for all cases
        with prepared("usual", 1024 if few else 20_000, max_connections="11000") as cluster:
            proof = Proof(cluster, quiet_s, scale)
            for case in usual:
                if case == "bombs":
                    for codec in (1, 2, 3, 4):
                        for kind in ("zeros", "shapes"):
                            if codec != 4 and (kind == "shapes" or scale <= 0.1) and scale < 1:
                                continue
                            attack = proof.bombs(codec, kind)
                            # What a bomb holds is read for a moment: a worker's memory.
                            name = f"bombs {CODEC_NAMES[codec]} {kind}"
                            add(proof.run(name, attack, memory=False))
                elif case == "giant":
                    add(proof.run(case, proof.giant, memory=False, stall_ms=300))
                elif case == "announced":
                    add(proof.run(case, proof.announced, neighbour_size=200_000, p99=True))
                elif case == "trickles":
                    add(proof.run(case, proof.trickles, neighbour_size=200_000, p99=True))
                elif case in ("readers", "deletion"):
                    add(proof.run(case, getattr(proof, case)()))
                elif case == "idle":
                    # Ten thousand connections cost 50 KiB each at most (F28).
                    outcome = proof.run(case, proof.idle, memory=False)
                    if outcome.grew_mib > 500 * scale:
                        outcome.wrong.append("an idle connection takes more than 50 KiB")
                    add(outcome)
                else:
                    add(proof.run(case, getattr(proof, case)))
            if few and "descriptors" in only:
                add(proof.run("descriptors", proof.descriptors))
                return found
    if "descriptors" in only:
        with prepared("few", 1024) as cluster:
            proof = Proof(cluster, quiet_s, scale)
            add(proof.run("descriptors", proof.descriptors))
    return found


def main() -> int:
    if sys.argv[1:2] == ["--neighbour"]:
        neighbour(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--short", action="store_true", help="less of everything")
    parser.add_argument(
        "--slice", action="store_true", help="still less, and times ten times as long allowed"
    )
    arguments = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))
    load = os.getloadavg()[0]
    print(f"load of this machine {load:.1f} on {os.cpu_count()} cores, descriptors {soft}")
    scale, quiet_s = (0.2, 1.5) if arguments.short else (1.0, 5.0)
    if arguments.slice:
        scale, quiet_s = 0.1, 0.5
    with tempfile.TemporaryDirectory() as folder:
        found = outcomes(Path(folder), arguments.only, scale, quiet_s)
    broken = [outcome.name for outcome in found if outcome.wrong]
    print(f"load afterwards {os.getloadavg()[0]:.1f}; broken: {', '.join(broken) or 'none'}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
