"""Faults: a broker's network and files, which fail as they are asked to.

Invariants: those of `net.faults`, which has the network; a disk that is full has no file grow; a
process that dies ends its connections, files and locks.
"""

import errno
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, cast

import msgspec

from ottla.log.files import OsFile, OsFiles, OsLock
from ottla.model.errors import ConfigError, OttlaError
from ottla.model.ports import Buffer, World, address_text
from ottla.net.faults import FaultyNetwork, Link
from ottla.net.runtime import RealNetwork, real_world
from ottla.zookeeper.addresses import ConnectString

Target = int | Literal["all", "brokers", "clients", "zookeeper"]
"""What a broker is separated from: a broker's id, or all of a kind."""


class Rules(msgspec.Struct, frozen=True):
    """All that is wrong around one broker; `links` by `host:port`."""

    links: dict[str, Link] = {}
    clients: Link | None = None
    disk_full: bool = False


class Faults:
    """All faults of one cluster.

    Links are what separates two brokers, and are in the rules of both, since each opens connections
    to the other.
    """

    def __init__(self) -> None:
        self.full: set[int] = set()
        """The brokers whose disks are full."""
        self._links: dict[tuple[int, int | str], Link] = {}

    def clear(self) -> None:
        self.full.clear()
        self._links.clear()

    def add(
        self, broker: int, from_: Target | Iterable[Target], link: Link, brokers: Collection[int]
    ) -> set[int]:
        """Separate a broker from others; return whose rules have changed."""
        touched = {broker}
        for target in _targets(broker, from_, brokers):
            self._links[broker, target] = link
            if isinstance(target, int):
                self._links[target, broker] = link
                touched.add(target)
        return touched

    def cut_off(self, broker: int) -> int:
        """Return from how many others, ZooKeeper counted, a broker is separated."""
        return sum(
            ours == broker and target != "clients" and link.mode != "slow"
            for (ours, target), link in self._links.items()
        )

    def rules(self, broker: int, addresses: Mapping[int, str], zookeeper: str) -> Rules:
        """Return a broker's rules. `addresses`: where brokers reach each other."""
        links: dict[str, Link] = {}
        for (ours, target), link in self._links.items():
            if ours != broker or target == "clients":
                continue
            if isinstance(target, int):
                links[addresses[target]] = link
            else:
                for host, port in ConnectString.parse(zookeeper).hosts:
                    links[address_text(host, port)] = link
        return Rules(links, self._links.get((broker, "clients")), broker in self.full)


def _targets(
    broker: int, from_: Target | Iterable[Target], brokers: Collection[int]
) -> set[int | str]:
    found: set[int | str] = set()
    for target in [from_] if isinstance(from_, int | str) else from_:
        if isinstance(target, int):
            if target not in brokers:
                raise OttlaError(f"no broker {target}; there are {', '.join(map(str, brokers))}")
            found.add(target)
        elif target in ("clients", "zookeeper"):
            found.add(target)
        elif target in ("brokers", "all"):
            found |= set(brokers)
            found |= {"clients", "zookeeper"} if target == "all" else set()
        else:
            raise ConfigError(f"from_={target!r}: write ids, brokers, clients, zookeeper or all")
    found.discard(broker)
    return found


def names(from_: Target | Iterable[Target]) -> str:
    """Return targets as a person names them."""
    targets = [from_] if isinstance(from_, int | str) else list(from_)
    return ", ".join(map(str, targets))


class FaultyFile(OsFile):
    """A file that does not grow while the disk is full."""

    __slots__ = ()

    def pwrite(self, parts: Sequence[Buffer], offset: int) -> int:
        files = cast("FaultyFiles", self._files)
        if files.full and offset + sum(map(len, parts)) > self.size():
            files.check_space(self._path)
        return super().pwrite(parts, offset)


class FaultyFiles(OsFiles):
    """The operating system's files, on a disk that can be full, of a process that can die."""

    def __init__(self, max_open: int | None = None) -> None:
        super().__init__(max_open)
        self.full = False
        self._dead = False
        self._locks: list[OsLock] = []

    def check_space(self, path: str) -> None:
        """Raise OSError (ENOSPC) while the disk is full."""
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        if create and not self.exists(path):
            self.check_space(path)
        fd = self._opened(path, os.O_RDWR | (os.O_CREAT if create else 0))
        file = FaultyFile(self, path, fd)
        self._admit(file)
        return file

    def write(self, path: str, data: bytes) -> None:
        self.check_space(path)
        super().write(path, data)

    def write_durable(self, path: str, data: bytes) -> None:
        self.check_space(path)
        super().write_durable(path, data)

    def make_dirs(self, path: str) -> None:
        if not self.is_dir(path):
            self.check_space(path)
        super().make_dirs(path)

    def space(self, path: str) -> tuple[int, int]:
        total, free = super().space(path)
        return total, 0 if self.full else free

    def lock(self, path: str) -> OsLock:
        lock = super().lock(path)
        self._locks.append(lock)
        return lock

    def _opened(self, path: str, flags: int) -> int:
        if self._dead:
            raise OSError(errno.EIO, "the broker was killed", path)
        return super()._opened(path, flags)

    def die(self) -> None:
        """Close every descriptor and give up every lock, as the end of a process does."""
        self._dead = True
        for file in list(self._open):
            self.forget(file)
        # Each forgets its descriptor: its number may soon be another file's.
        for lock in self._locks:
            lock.release()
        with self._guard:
            while self._reserve:
                os.close(self._reserve.pop())


class FaultLayer:
    """The world of one broker, with faults in it."""

    def __init__(self, clients_port: int, max_open: int | None = None) -> None:
        self.files = FaultyFiles(max_open)
        self.network = FaultyNetwork(RealNetwork(), clients_port)
        real = real_world(self.files)
        self.world = World(real.clock, real.random, self.files, self.network, real.workers)

    def apply(self, rules: Rules) -> None:
        """Put these faults into force, and no other; call it in the loop."""
        self.files.full = rules.disk_full
        self.network.apply(rules.links, rules.clients)

    def die(self) -> None:
        """End what a process's death ends; call it in the loop, which is to stop then."""
        self.network.die()
        self.files.die()
