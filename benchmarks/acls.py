"""What authorization costs: one check with 10,000 ACLs, and a Produce request with and without.

    python benchmarks/acls.py

Microseconds, the best of several rounds; figures double or triple on a busy machine.
"""

import os
import sys
import time
import timeit
from dataclasses import replace
from types import SimpleNamespace

from ottla.broker.authorization.request_authorizer import RequestAuthorizer
from ottla.broker.requests.responses import respond
from ottla.broker.requests.router import Router
from ottla.broker.requests.routes import ROUTES
from ottla.broker.tasks import Tasks
from ottla.security.acls import ALLOW, PREFIXED, READ, TOPIC, WRITE, Entry, Pattern
from ottla.security.authorizer import AclAuthorizer
from ottla.security.principals import Principal
from ottla.wire.codec import encode_request
from ottla.wire.headers import encode_request_header
from ottla.wire.messages.produce import ProduceRequest, ProduceResponse

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


def main() -> None:
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
