"""What authorization costs: one check with 10,000 ACLs, and a Produce request with and without.

    python benchmarks/acls.py              parts of it, microseconds, the best of several rounds
    python benchmarks/acls.py --brokers    a broker's processor time for Produce requests

Figures double or triple on a busy machine; processor time stays nearer to what it is.
"""

import asyncio
import os
import sys
import tempfile
import time
import timeit
from pathlib import Path
from types import SimpleNamespace

from msgspec.structs import replace

from ottla.broker.authorization.request_authorizer import RequestAuthorizer
from ottla.broker.requests.responses import respond
from ottla.broker.requests.router import Router
from ottla.broker.requests.routes import ROUTES
from ottla.broker.tasks import Tasks
from ottla.log.files import OsFiles
from ottla.net.peer import PeerConnection
from ottla.net.runtime import real_world
from ottla.security.acls import ALLOW, PREFIXED, READ, TOPIC, WRITE, Entry, Pattern
from ottla.security.authorizer import AclAuthorizer
from ottla.security.principals import Principal
from ottla.wire.codec import encode_request
from ottla.wire.headers import encode_request_header
from ottla.wire.messages.cluster import MetadataRequest
from ottla.wire.messages.records import ProduceRequest, ProduceResponse
from ottla.wire.records import Record, build_batch
from ottla.zookeeper.acls import AclEntry, acl_path, encode_acls

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.cluster import OttlaCluster  # tests are no package
from support.guarded import ACCESS, GuardedOttla, operators_acls
from support.seen import ask

APP = Principal("User", "u7")
HOST = "10.0.0.7"
ACLS = 10_000


def show(name, function, number=20_000):
    best = min(timeit.repeat(function, number=number, repeat=7)) / number
    print(f"{name:66s} {best * 1e6:9.2f} us")
    return best * 1e6


def filled() -> AclAuthorizer:
    """Half by name, half by prefix, of a hundred principals."""
    authorizer = AclAuthorizer()
    for number in range(ACLS // 2):
        who = f"User:u{number % 100}"
        authorizer.set(Pattern(TOPIC, f"t{number}"), [Entry(who, "*", WRITE, ALLOW)])
        prefix = Pattern(TOPIC, f"team-{number}-", PREFIXED)
        authorizer.set(prefix, [Entry(who, "*", READ, ALLOW)])
    return authorizer


def produce_frame(partitions: int) -> memoryview:
    parts = [
        ProduceRequest.PartitionProduceData(index=i, records=bytes(200)) for i in range(partitions)
    ]
    topic = ProduceRequest.TopicProduceData(name="t7", partition_data=parts)
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])
    header = encode_request_header(0, 9, 1, "bench")
    return memoryview(header + b"".join(encode_request(request, 9)))


def router(authorizer: RequestAuthorizer | None) -> Router:
    """A router whose handler of Produce does nothing: what is left is what all requests cost."""

    def handle(server, conn, header, request):  # noqa: ARG001 - as a handler has it
        return respond(header, ProduceResponse())

    server = SimpleNamespace(
        served=(), tasks=Tasks(), quotas=SimpleNamespace(active=False), authorizer=authorizer
    )
    return Router(server, [replace(ROUTES[0], handle=handle)])


def compare(conn: object, asking: RequestAuthorizer, partitions: int) -> None:
    frame = produce_frame(partitions)
    without, guarded = router(None), router(asking)
    a = show(f"Produce of {partitions}, no authorizer", lambda: without.dispatch(conn, frame))
    b = show(f"Produce of {partitions}, with one", lambda: guarded.dispatch(conn, frame))
    print(f"{'':10s}the guard: {b - a:.2f} us")


def znodes() -> dict[str, bytes]:
    """10,000 ACLs and those of the operator, who comes from 127.0.0.1, by their paths."""
    found = operators_acls()
    for number in range(100):
        rules = [AclEntry(f"User:u{i}", "Allow", "Write", "*") for i in range(ACLS // 100)]
        found[acl_path("Topic", f"t{number}")] = encode_acls(rules)
    return found


async def produced(address: str, count: int) -> None:
    host, _, port = address.rpartition(":")
    peer = await PeerConnection.open(real_world(OsFiles()), host, int(port), "bench", timeout_s=10)
    records = build_batch([Record(value=b"x" * 100)])
    part = ProduceRequest.PartitionProduceData(index=0, records=records)
    topic = ProduceRequest.TopicProduceData(name="bench", partition_data=[part])
    request = ProduceRequest(acks=1, timeout_ms=9000, topic_data=[topic])
    try:
        for _ in range(count // 5):
            await asyncio.gather(*(peer.send(request, 9, 30) for _ in range(5)))
    finally:
        peer.close()


def processor_us(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1e6 / os.sysconf("SC_CLK_TCK")


def with_brokers(requests: int = 20_000) -> None:
    """Two brokers, one with 10,000 ACLs, in turns: the processor time of each per request."""
    with tempfile.TemporaryDirectory() as folder:
        one = OttlaCluster(Path(folder) / "open", 1, auto_create_topics_enable="true")
        other = GuardedOttla(Path(folder) / "acls", 1, auto_create_topics_enable="true", **ACCESS)
        other.acls = znodes()
        with one, other:
            took: dict[str, list[float]] = {"without": [], "with 10,000 ACLs": []}
            for cluster in (one, other):
                named = MetadataRequest.MetadataRequestTopic(name="bench")
                ask(cluster.address(0), MetadataRequest(topics=[named]), 9)
                time.sleep(1)
            for _ in range(5):
                for name, cluster in zip(took, (one, other), strict=True):
                    before = processor_us(cluster.pid(0))
                    asyncio.run(produced(cluster.address(0), requests))
                    took[name].append((processor_us(cluster.pid(0)) - before) / requests)
            for name, found in took.items():
                print(
                    f"Produce, one record, {name:18s} {min(found):7.2f} us of a core, the best of 5"
                )


def main() -> None:
    if "--brokers" in sys.argv:
        with_brokers()
        return
    print(f"load {os.getloadavg()[0]:.1f}, python {sys.version.split()[0]}, {ACLS} ACLs")
    authorizer = filled()
    assert authorizer.allows(APP, HOST, WRITE, TOPIC, "t7")
    assert not authorizer.allows(APP, HOST, WRITE, TOPIC, "t8")
    took = show(
        "a check that was asked before", lambda: authorizer.allows(APP, HOST, WRITE, TOPIC, "t7")
    )
    show(
        "a check that was not, of a name", lambda: authorizer.decide(APP, HOST, WRITE, TOPIC, "t7")
    )
    show(
        "a check that was not, of a prefix",
        lambda: authorizer.decide(APP, HOST, READ, TOPIC, "team-7-orders"),
    )
    show("a check that was not, denied", lambda: authorizer.decide(APP, HOST, READ, TOPIC, "none"))
    asking = RequestAuthorizer(authorizer, SimpleNamespace(monotonic=time.monotonic))
    conn = SimpleNamespace(peer=(HOST, 1), principal=APP, listener="L")
    show(
        "a check of a request, with what is logged",
        lambda: asking.allows(conn, 0, WRITE, TOPIC, "t7"),
    )
    for partitions in (1, 10):
        compare(conn, asking, partitions)
    print("at most 2 us a check on the hot path:", "yes" if took <= 2 else "NO")


if __name__ == "__main__":
    main()
