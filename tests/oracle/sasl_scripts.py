"""Frames for a SASL listener, scripts of them, and what a server does with a script.

The same bytes go to a server of ours and to Kafka's; what came back is compared as it came, but for
what must differ: nonces, the list of APIs, what Metadata says of a cluster.
"""

import itertools
import math
import socket
import struct
import time
from collections.abc import Iterator, Sequence

from ottla.wire.codec import encode_request
from ottla.wire.headers import encode_request_header
from ottla.wire.messages.cluster import ApiVersionsRequest, MetadataRequest
from ottla.wire.messages.groups import FindCoordinatorRequest
from ottla.wire.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from support.sasl_clusters import USERS

WAIT_S = 15.0
ILLEGAL = b"\0\x22"
Script = tuple[str, ...]


def request(message, version: int, correlation: int = 7) -> bytes:
    head = encode_request_header(message.API_KEY, version, correlation, "differ")
    return head + b"".join(bytes(part) for part in encode_request(message, version))


def versions(name: str = "differ") -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version="1")


def token(data: bytes, version: int = 1) -> bytes:
    return request(SaslAuthenticateRequest(auth_bytes=data), version)


def handshake(mechanism: str, version: int = 1) -> bytes:
    return request(SaslHandshakeRequest(mechanism=mechanism), version)


def plain(name: str = "alice", password: str = USERS["alice"], authzid: str = "") -> bytes:
    return f"{authzid}\0{name}\0{password}".encode()


def with_version(frame: bytes, version: int) -> bytes:
    return frame[:2] + struct.pack(">h", version) + frame[4:]


FRAMES = {
    "versions": request(versions(), 3),
    "versions0": request(versions(), 0),
    "versions of the future": with_version(request(versions(), 3), 99),
    "versions of no software": request(versions("not valid!"), 3),
    "handshake0 plain": handshake("PLAIN", 0),
    "handshake plain": handshake("PLAIN"),
    "handshake scram": handshake("SCRAM-SHA-256"),
    "handshake unknown": handshake("NOSUCH"),
    "handshake gssapi": handshake("GSSAPI"),
    "handshake of the future": with_version(handshake("PLAIN"), 2),
    "handshake cut": handshake("PLAIN")[:-3],
    "token": token(plain()),
    "token0": token(plain(), 0),
    "token2": token(plain(), 2),
    "token of the future": with_version(token(plain()), 9),
    "token cut": token(plain())[:-3],
    "wrong password": token(plain(password="wrong")),
    "unknown user": token(plain("nobody")),
    "no user": token(plain("")),
    "no password": token(plain(password="")),
    "other authzid": token(plain(authzid="admin")),
    "token of bob": token(plain("bob", USERS["bob"])),
    "same authzid": token(plain(authzid="alice")),
    "two parts": token(b"\0alice"),
    "four parts": token(b"\0alice\0a\0b"),
    "empty token": token(b""),
    "scram first": token(b"n,,n=alice,r=clientnonce"),
    "scram other authzid": token(b"n,a=admin,n=alice,r=clientnonce"),
    "scram no message": token(b"y,,n=alice"),
    "scram final": token(b"c=biws,r=clientnonce,p=AAAA"),
    "raw": plain(),
    "raw wrong": plain(password="wrong"),
    "metadata": request(
        MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name="none")],
            allow_auto_topic_creation=False,
        ),
        4,
    ),
    "coordinator": request(FindCoordinatorRequest(key="g", key_type=0), 2),
    "unknown api": struct.pack(">hhi", 999, 0, 7) + b"\0\0",
    "garbage": b"\x01\x02\x03",
    "empty": b"",
}
BUSY = ("versions", "handshake0 plain", "handshake plain", "handshake scram", "token", "raw",
        "metadata", "wrong password", "handshake unknown", "scram first")  # fmt: skip


def scripts() -> Iterator[Script]:
    """Yield all pairs of frames, and all triples of the busy ones, and some longer ones."""
    yield from itertools.product(FRAMES)
    yield from itertools.product(FRAMES, FRAMES)
    begun = [("handshake plain",), ("handshake scram",), ("handshake0 plain",),
             ("handshake plain", "token"), ("handshake0 plain", "raw"),
             ("handshake scram", "scram first"),
             ("versions", "handshake plain"), ("versions", "handshake plain", "token")]  # fmt: skip
    seen = set(itertools.product(FRAMES, FRAMES))
    for start, one in itertools.product(begun, FRAMES):
        script = (*start, one)
        if script not in seen:
            seen.add(script)
            yield script
    for script in itertools.product(BUSY, BUSY, BUSY):
        if script not in seen:
            yield script


PLAINLY = ("handshake plain", "token")
AGAIN = [
    (*PLAINLY, "metadata"),
    (*PLAINLY, *PLAINLY, "metadata"),
    (*PLAINLY, "handshake0 plain", "raw", "metadata"),
    ("handshake0 plain", "raw", *PLAINLY, "metadata"),
    (*PLAINLY, *PLAINLY, *PLAINLY),  # sooner than after a second
    (*PLAINLY, *PLAINLY, "pause", *PLAINLY, "metadata"),
    (*PLAINLY, "pause", "metadata"),
    (*PLAINLY, "pause", "versions"),
    (*PLAINLY, "pause", "token"),
    (*PLAINLY, "pause", *PLAINLY, "metadata"),
    (*PLAINLY, "handshake plain", "pause", "token", "metadata"),
    *((*PLAINLY, name, *then) for name in ("handshake unknown", "handshake of the future",
                                           "handshake cut", "token", "garbage", "unknown api")
      for then in ((), ("metadata",))),
    *((*PLAINLY, "handshake scram", name) for name in ("token", "scram first", "metadata")),
    *((*PLAINLY, "handshake plain", name, "metadata") for name in (
        "wrong password", "unknown user", "other authzid", "token of bob", "metadata", "versions",
        "handshake plain", "raw", "empty", "two parts")),
]  # fmt: skip
PAUSE_S = 1.6
"""Longer than a session and than a reauthentication may take to be allowed again."""
SESSION_MS = 1200

IN_TIME_S = 0.8
"""Within a session, and sooner than a reauthentication is allowed again."""


class LateError(Exception):
    """A script took longer than the sessions that it is about."""


def run(port: int, script: Sequence[str], within_s: float = math.inf) -> list[str]:
    """Send a script frame by frame; return what came back, and whether the connection ended.

    LateError if what stands between two pauses took longer than `within_s`.
    """
    seen, longest_s = [], 0.0
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as connection:
        connection.settimeout(WAIT_S)
        began_s = time.monotonic()
        for name in script:
            if name == "pause":
                longest_s = max(longest_s, time.monotonic() - began_s)
                time.sleep(PAUSE_S)
                began_s = time.monotonic()
                continue
            seen.append(answered(connection, name))
            if seen[-1] in ("silent", "closed"):
                break
        longest_s = max(longest_s, time.monotonic() - began_s)
    if longest_s > within_s:
        raise LateError(f"{script}: {longest_s:.1f} s")
    return seen


def answered(connection: socket.socket, name: str) -> str:
    """Send a frame; return what came back of it."""
    frame = FRAMES[name]
    try:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        answer = read(connection)
    except TimeoutError:
        return "silent"
    except OSError:
        answer = None
    return "closed" if answer is None else shown(name, answer)


def read(connection: socket.socket) -> bytes | None:
    """Return one frame, None at the end of the stream."""
    head = exactly(connection, 4)
    return None if head is None else exactly(connection, struct.unpack(">i", head)[0])


def exactly(connection: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            return None
        data += part
    return data


def shown(name: str, answer: bytes) -> str:
    """Return an answer without what differs from broker to broker."""
    if name.startswith("versions"):
        return f"correlation {answer[:4].hex()} error {answer[4:6].hex()}"
    if name.startswith("handshake") and b"PLAIN" in answer:
        # Kafka lists mechanisms in the order of a hash map, ours in that of the settings.
        listed = sorted(part[1:] for part in answer[10:].split(b"\0"))
        return f"correlation {answer[:4].hex()} error {answer[4:6].hex()} {listed}"
    if name == "scram first" and b"r=clientnonce" in answer:
        at = answer.index(b"r=clientnonce")
        return f"challenge {answer[:at].hex()[:-2]} {answer.rpartition(b',i=')[2][:4]!r}"
    if name == "coordinator":  # who it is, and whether there is one already, is another matter
        illegal = " illegal state" if answer[8:10] == ILLEGAL else ""
        return f"correlation {answer[:4].hex()}{illegal}"
    if name == "metadata" and len(answer) > 50:
        return f"correlation {answer[:4].hex()}"
    return answer.hex()
