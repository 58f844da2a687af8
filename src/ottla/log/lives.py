"""Lives: which life of this broker wrote a log dir, and what that life knew of ZooKeeper (R22).

A life is one process, from the lock of its log dirs to its end; it has a name. The name stands in
each log dir, durably, and in the broker's statement in ZooKeeper: a dir that was replaced by an
older copy is recognized. Invariants:
- a dir names a new life (`next`) before that life registers, and says that it did (`life`) after
  it; a process that dies in between is taken for neither an older one nor another one
- what a dir remembers of ZooKeeper only falls when a broker registers: what it finds then to be
  older than it remembers shows that ZooKeeper itself was replaced by an older copy
- a JVM broker that used a dir in between changes nothing here, and a dir without the file is taken
  as Kafka takes it while ZooKeeper has no life to compare it with
Kafka: the broker epoch in the clean shutdown file (KIP-966); adr/0025 says why that is not enough.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from ottla.model.protocol import UNKNOWN_BROKER_EPOCH

LIFE_FILE = ".ottla-life"


class Stated(NamedTuple):
    """What ZooKeeper has of this broker: read after a sync."""

    life: str = ""
    """the life in its last statement; "" if there is none"""
    zxid: int = 0
    """of that statement; 0 if there is none"""
    newest_zxid: int = 0
    controller_epoch: int | None = None
    """None: unreadable, or there was no controller yet"""


class Life(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a log dir says."""

    version: int = 1
    life: str = ""
    """the last life here that ZooKeeper registered"""
    next: str = ""
    """the life that was about to register"""
    broker_epoch: int = UNKNOWN_BROKER_EPOCH
    """of its last registration"""
    statement_zxid: int = 0
    """of what the broker last wrote to its own statement"""
    zxid: int = 0
    """the newest that the broker saw"""
    controller_epoch: int = 0
    """the highest that it heard of"""
    session: int = 0
    """its ZooKeeper session"""
    lock: str = ""
    """the lock file that it held (`Files.lock_id`)"""
    zookeeper_went_back: bool = False
    """whether any life found ZooKeeper older than what it remembered: strays then stay forever"""

    def is_last(self, stated: str) -> bool:
        """Return whether this dir is of the life that ZooKeeper knows as the last one."""
        return stated == self.life or (bool(stated) and stated == self.next)


def decode(data: bytes) -> Life:
    """Return what a file says; nothing if it is damaged: the dir is then of an unknown life."""
    try:
        return msgspec.json.decode(data, type=Life)
    except msgspec.MsgspecError:
        return Life()


def went_back(lives: Iterable[Life], stated: Stated) -> str:
    """Return how ZooKeeper is older than the log dirs remember it; "" if it is not."""
    known = list(lives)
    statement = max((life.statement_zxid for life in known), default=0)
    if statement > stated.zxid:
        return (
            f"what this broker wrote there at zxid {statement:#x} is gone, "
            f"its newest statement is of {stated.zxid:#x}"
        )
    zxid = max((life.zxid for life in known), default=0)
    if zxid > stated.newest_zxid:
        return f"this broker saw zxid {zxid:#x} there, the newest is {stated.newest_zxid:#x}"
    epoch = max((life.controller_epoch for life in known), default=0)
    if stated.controller_epoch is not None and epoch > stated.controller_epoch:
        return (
            f"this broker knew controller epoch {epoch}, /controller_epoch has "
            f"{stated.controller_epoch}"
        )
    return ""
