"""Statements: what a broker of ours states beside its registration, and who removed that.

Invariants: `/ottla/brokers/ID` is written in the multi that registers the broker, so that its mzxid
is the broker epoch; a statement with another mzxid says nothing of the present registration. JVM
brokers do not look below `/ottla`, and have none. A broker that removes a registration writes its
reason here, in the same multi. The life that registered last stays named when the registration is
gone. Kafka has no counterpart (adr/0007, adr/0018, adr/0025).
"""

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from ottla.zookeeper import znodes
from ottla.zookeeper.jute import Stat

ROOT = "/ottla"
BROKERS = f"{ROOT}/brokers"
MAX_EVIDENCE = 500
"""Characters of the reason that a removal gives."""


class Removal(msgspec.Struct, frozen=True):
    """A registration was removed: which one, by whom, and what was seen."""

    broker_epoch: int
    by: Annotated[int, Meta(ge=-1)]
    evidence: str


class Statement(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a broker states; `logs_whole`: it kept all logs (adr/0007), `removable`: see adr/0018.

    `life` names the life that registered last (adr/0025).
    """

    version: int = 1
    logs_whole: bool = False
    removable: bool = False
    """Whether the registration may be removed where all endpoints refuse connections: the broker
    would register again."""
    voids_eligible: bool = False
    """Whether the broker, as a leader, deletes the record of eligible replicas before it moves its
    high watermark without them. JVM brokers do not, nor did Ottla's before this."""
    removal: Removal | None = None
    life: str = ""
    zookeeper_went_back: str = ""
    """How ZooKeeper is older than what this broker knew of it when it registered."""


class Standing(NamedTuple):
    """What ZooKeeper has of a broker id before it registers, in one consistent view."""

    statement: Statement
    zxid: int
    """of the statement; 0 where nothing is stated"""
    version: int
    """of the statement's znode"""
    newest_zxid: int
    controller_epoch: int | None
    """None where there is none, or it cannot be read"""


def statement_path(broker_id: int) -> str:
    return f"{BROKERS}/{broker_id}"


def encode_statement(statement: Statement) -> bytes:
    """Return a statement's JSON; earlier versions expect the first two fields in each."""
    always = {"version": 1, "logs_whole": statement.logs_whole}
    return msgspec.json.encode(always | msgspec.to_builtins(statement))


def decode_statement(broker_id: int, data: bytes) -> Statement:
    """Return a statement, an empty one for a znode without data; MalformedZnodeError."""
    return znodes.decode_json(Statement, statement_path(broker_id), data) if data else Statement()


def states_of(reply: tuple[bytes, Stat] | None, broker_epoch: int) -> bool:
    """Return whether what was read is a statement of the registration with this epoch."""
    return reply is not None and bool(reply[0]) and reply[1].mzxid == broker_epoch
