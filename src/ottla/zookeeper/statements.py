"""Statements: what a broker of ours states beside its registration, and who removed that.

Who may call: the parts of `store`. Invariants: `/ottla/brokers/ID` is written in the multi that
registers the broker, so that its mzxid is the broker epoch; a statement with another mzxid says
nothing of the present registration. JVM brokers do not look below `/ottla`, and have none. Whoever
removes a registration writes its reason here, in the same multi. Kafka has no counterpart
(adr/0007, adr/0018).
"""

from typing import Annotated

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
    """`logs_whole`: all logs were kept (adr/0007). `removable`: see adr/0018."""

    version: int = 1
    logs_whole: bool = False
    removable: bool = False
    """Whether the registration may be removed where all endpoints refuse connections: the broker
    would register anew."""
    voids_eligible: bool = False
    """Whether the broker, as a leader, deletes the record of eligible replicas before it moves its
    high watermark without them. JVM brokers do not, nor did Ottla's before this."""
    removal: Removal | None = None


def statement_path(broker_id: int) -> str:
    return f"{BROKERS}/{broker_id}"


def encode_statement(*, logs_whole: bool, removable: bool = False) -> bytes:
    statement = {"version": 1, "logs_whole": logs_whole, "voids_eligible": True}
    return msgspec.json.encode(statement | ({"removable": True} if removable else {}))


def encode_removal(removal: Removal) -> bytes:
    return msgspec.json.encode({"version": 1, "logs_whole": False, "removal": removal})


def decode_statement(broker_id: int, data: bytes) -> Statement:
    """Return a statement, an empty one for a znode without data; MalformedZnodeError."""
    return znodes.decode_json(Statement, statement_path(broker_id), data) if data else Statement()


def states_of(reply: tuple[bytes, Stat] | None, broker_epoch: int) -> bool:
    """Return whether what was read is a statement of the registration with this epoch."""
    return reply is not None and bool(reply[0]) and reply[1].mzxid == broker_epoch
