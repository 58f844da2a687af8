"""Znodes read and explained: what each of Kafka's is for, and what its data says.

Invariants: nothing is written but the session itself; no watch is left; data that is not what its
kind should have is shown as it is.
"""

import base64
import json
import re
from collections.abc import AsyncIterator
from typing import Any

from msgspec import UNSET, Struct

from ottla.model.errors import OttlaError
from ottla.zookeeper.addresses import check_path
from ottla.zookeeper.errors import NoNodeError
from ottla.zookeeper.session import Session

MOST = 100_000

KINDS = (
    (r"/cluster/id", "cluster id"),
    (r"/controller", "the controller"),
    (r"/controller_epoch", "epoch of the newest controller"),
    (r"/brokers/ids/\d+", "a live broker"),
    (r"/brokers/ids", "live brokers"),
    (r"/brokers/seqid", "source of generated broker ids"),
    (r"/brokers/topics", "topics"),
    (r"/brokers/topics/[^/]+", "a topic's replicas"),
    (r"/brokers/topics/[^/]+/partitions", "a topic's partitions"),
    (r"/brokers/topics/[^/]+/partitions/\d+", "a partition"),
    (r"/brokers/topics/[^/]+/partitions/\d+/state", "leader and ISR of a partition"),
    (r"/config/topics/.+", "settings of a topic"),
    (r"/config/brokers/.+", "dynamic settings of brokers"),
    (r"/config/users/[^/]+(/clients/[^/]+)?", "quotas and credentials of users"),
    (r"/config/clients/.+", "quotas of client ids"),
    (r"/config/ips/.+", "quotas of addresses"),
    (r"/config/changes/.+", "what was changed"),
    (r"/admin/delete_topics/.+", "a topic that is to be deleted"),
    (r"/admin/reassign_partitions", "a reassignment, as old tools ask for it"),
    (r"/admin/preferred_replica_election", "an election, as old tools ask for it"),
    (r"/isr_change_notification/.+", "ISRs that a leader changed"),
    (r"/log_dir_event_notification/.+", "a log dir that failed"),
    (r"/latest_producer_id_block", "the newest block of producer ids"),
    (r"/feature", "feature levels"),
    (r"/delegation_token/.+", "a delegation token"),
    (r"/kafka-acl.*", "access rights"),
    (r"/ottla/.+", "what only Ottla keeps: docs/RELIABILITY.md"),
)


class Znode(Struct):
    """A znode, and what ZooKeeper knows about it. `data` is left out of lists."""

    path: str
    kind: str
    encoding: str
    version: int
    created_ms: int
    modified_ms: int
    created_zxid: int
    modified_zxid: int
    ephemeral_owner: str | None
    bytes: int
    children: int
    data: Any = UNSET


_COMPILED = [(re.compile(pattern), kind) for pattern, kind in KINDS]


def kind_of(path: str) -> str:
    """Return what a znode is for; empty where nothing is known of it."""
    return next((kind for pattern, kind in _COMPILED if pattern.fullmatch(path)), "")


def decoded(data: bytes) -> tuple[str, object]:
    """Return how data is written (none, json, text, base64) and what it says."""
    if not data:
        return "none", None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "base64", base64.b64encode(data).decode()
    try:
        return "json", json.loads(text)
    except ValueError:
        return "text", text


async def read(session: Session, path: str) -> Znode:
    """Return a znode with its data and all that ZooKeeper knows about it."""
    check_path(path)
    try:
        data, stat = await session.get(path)
    except NoNodeError:
        raise OttlaError(f"there is no znode {path}; `ottla znode ls` lists them") from None
    encoding, content = decoded(data)
    return Znode(
        path=path,
        kind=kind_of(path),
        encoding=encoding,
        version=stat.version,
        created_ms=stat.ctime,
        modified_ms=stat.mtime,
        created_zxid=stat.czxid,
        modified_zxid=stat.mzxid,
        ephemeral_owner=f"{stat.ephemeral_owner:#x}" if stat.ephemeral_owner else None,
        bytes=stat.data_length,
        children=stat.num_children,
        data=content,
    )


async def tree(session: Session, path: str, *, recursive: bool) -> AsyncIterator[Znode]:
    """Yield the znodes below one, without data, by name; all of them if `recursive`."""
    check_path(path)
    try:
        names = await session.children(path)
    except NoNodeError:
        raise OttlaError(f"there is no znode {path}; `ottla znode ls` lists them") from None
    left = [_below(path, name) for name in sorted(names, reverse=True)]
    count = 0
    while left:
        here = left.pop()
        try:
            found = await read(session, here)
        except OttlaError:
            continue  # it went meanwhile
        found.data = UNSET
        yield found
        count += 1
        if count == MOST:
            raise OttlaError(f"more than {MOST:,} znodes; name one further down")
        if recursive and found.children:
            names = await session.children(here)
            left += [_below(here, name) for name in sorted(names, reverse=True)]


def _below(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}"
