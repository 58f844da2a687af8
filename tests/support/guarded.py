"""Clusters with ACLs: in ZooKeeper before the brokers start, and clients told apart by address.

No client of these authenticates: all are User:ANONYMOUS, and ACLs are about the address of 127/8
that they come from. Brokers and the operator come from 127.0.0.1 and may do everything.
"""

import contextlib
import socket
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from ottla.security.acls import CLUSTER, CLUSTER_NAME, RESOURCE_TYPES, WILDCARD
from ottla.wire.codec import decode_response, encode_request
from ottla.wire.headers import decode_response_header, encode_request_header
from ottla.zookeeper.acls import AclEntry, acl_path, encode_acls

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.cluster import BrokerProcesses, OttlaCluster  # tests are no package
from support.kafka39 import Kafka39Cluster

ACCESS = {
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:admin;User:other",
}
ANONYMOUS = "User:ANONYMOUS"
OPERATORS_HOST = "127.0.0.1"


def operators_entries() -> dict[tuple[int, str], AclEntry]:
    """Return what lets brokers and the operator do everything, by type and name."""
    entry = AclEntry(ANONYMOUS, "Allow", "All", OPERATORS_HOST)
    return {(k, CLUSTER_NAME if k == CLUSTER else WILDCARD): entry for k in RESOURCE_TYPES}


def operators_acls() -> dict[str, bytes]:
    """Return the same as znodes by their paths."""
    return {
        acl_path(RESOURCE_TYPES[kind], name): encode_acls([entry])
        for (kind, name), entry in operators_entries().items()
    }


def write_znodes(zookeeper: str, found: Mapping[str, bytes]) -> None:
    client = KazooClient(zookeeper)
    client.start(timeout=30)
    try:
        for path, data in found.items():
            with contextlib.suppress(NodeExistsError):  # by the brokers of another kind
                client.create(path, data, makepath=True)
    finally:
        client.stop()
        client.close()


class _Guarded(BrokerProcesses):
    """Writes ACLs before its first broker starts. Empty: somebody else has written them."""

    acls: Mapping[str, bytes] = operators_acls()

    def start_broker(self, broker: int, *, wait: bool = True) -> None:
        if self.acls:
            write_znodes(self.zookeeper, self.acls)
            self.acls = {}
        super().start_broker(broker, wait=wait)


class GuardedOttla(_Guarded, OttlaCluster):
    """Brokers of ours."""


class GuardedKafka(_Guarded, Kafka39Cluster):
    """Kafka's."""


class Stranger:
    """A client that comes from an address of its own. One connection for each request."""

    def __init__(self, host: str) -> None:
        self.host = host

    def ask(self, address: str, message: Any, version: int) -> Any:
        """Return the response; ConnectionError if the connection is closed instead."""
        host, _, port = address.rpartition(":")
        header = encode_request_header(message.API_KEY, version, 7, "stranger")
        frame = header + b"".join(encode_request(message, version))
        source = (self.host, 0)
        with socket.create_connection((host, int(port)), 10, source_address=source) as connection:
            connection.settimeout(20)
            connection.sendall(struct.pack(">i", len(frame)) + frame)
            (size,) = struct.unpack(">i", _receive(connection, 4))
            raw = memoryview(_receive(connection, size))
        _, position = decode_response_header(message.API_KEY, version, raw)
        return decode_response(message.API_KEY, version, raw, position)


def _receive(connection: socket.socket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        part = connection.recv(size - len(got))
        if not part:
            raise ConnectionError("closed by the broker")
        got += part
    return bytes(got)
