"""Links: which brokers are separated from which, and which disks are full.

Pure. Invariants: what separates two brokers is in the rules of both, since each opens connections
to the other.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from ottla.model.errors import ConfigError, OttlaError
from ottla.model.ports import address_text
from ottla.net.faults import Link
from ottla.testing.faults import Rules
from ottla.zookeeper.addresses import ConnectString

Target = int | Literal["all", "brokers", "clients", "zookeeper"]
"""What a broker is separated from: a broker's id, or all of a kind."""


class Faults:
    """All faults of one cluster."""

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
