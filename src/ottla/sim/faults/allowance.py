"""What may be taken from brokers, what they lack, and which disks are to be replaced.

How much may be lost at once:
- gentle: power is taken from one broker only, while every other is up and every replica in sync,
  and until its disk has caught up no other broker is taken away;
- hard: power (or a disk's pages) is taken from any brokers, again and again, as long as every
  partition keeps one replica in sync that has lost nothing and comes back. That is the promise of
  R13 and R18: no acknowledged record is lost while one member of the in-sync set that acknowledged
  it kept its data. A machine that lost something counts as lacking until its disk has all that the
  others have, which lost nothing; what the controller believes does not count. Who has come back
  waits for the others for replica.lag.time.max.ms only (adr/0005): so meanwhile the whole ones are
  not taken away for longer than that, and what lacks records may be killed and cut off as always;
- careless: beyond any promise.
"""

from collections.abc import Callable

from ottla.sim.machines import Machines
from ottla.sim.world import Node


class Allowance:
    """Keeps account for one run."""

    def __init__(self, cluster: Machines, *, hard: bool, careless: bool) -> None:
        """`hard`, `careless`: see above."""
        self.cluster = cluster
        self.hard = hard
        self.over = False
        """Whether no further faults are drawn."""
        self.bad_disks: dict[str, str] = {}
        """By broker, which of its log dirs is to be replaced."""
        self.careless = careless
        """Whether others are taken away while one has not got its lost records back (R13)."""
        self._lacking: dict[Node, None] = {}
        """Brokers that have lost something unsynced and not got it back."""
        self._reserved: list[tuple[list[Node], Callable[[], object]]] = []
        """Brokers that only one fault may deal with, and how that one ends."""

    def lacks(self, node: Node) -> bool:
        """Whether a broker lost something unsynced and was not seen to have got it back."""
        return node in self._lacking

    def weakened(self) -> bool:
        """Whether nothing else is to be broken: a broker lacks records that were acknowledged.

        One that is yet to lose them counts from when that was settled: it has all of them until
        then, and no one else may lose any meanwhile.
        """
        for node in list(self._lacking):
            if self._is_armed(node):
                continue
            back = (
                self.cluster.regained(node, self._lacking)
                if self.hard
                else node.up and self.cluster.all_in_sync() and self.cluster.caught_up(node)
            )
            if back:
                del self._lacking[node]
        return bool(self._lacking)

    def may_take_away(self, node: Node) -> bool:
        """Whether a broker that runs may be killed, paused or cut off."""
        spared = bool(self._lacking) and not self.careless and node not in self._lacking
        return node.running and not self.is_reserved(node) and not spared

    def may_lose(self, victims: list[Node]) -> bool:
        """Whether these brokers may lose what is not synced; they lack it then.

        Gentle: only one, whose records all others have too, while all others live.
        """
        cluster = self.cluster
        nodes = cluster.broker_nodes()
        if any(self.is_reserved(node) for node in victims):
            return False
        if self.hard and not self.careless:
            gone = [n for n in nodes if n in self._lacking or self._is_away(n)]
            if not cluster.whole_everywhere(victims, gone):
                return False
        elif not self.careless and (
            len(victims) > 1
            or any(self._is_away(n) for n in nodes)
            or not cluster.all_in_sync()
            or not all(cluster.caught_up(node) for node in nodes)
            or not cluster.whole_everywhere(victims, [])
        ):
            return False
        self._lacking.update(dict.fromkeys(victims))
        return True

    def _is_away(self, node: Node) -> bool:
        """Whether a broker is down, stopped, cut off or about to be, for no one knows how long."""
        return (
            not node.running
            or self._is_armed(node)
            or node.name in self.cluster.simulation.internet.refusing
            or self.cluster.simulation.internet.is_blocked(node.name)
        )

    def _is_armed(self, node: Node) -> bool:
        """Whether a broker ends at an operation to come, or has a disk that is to be replaced."""
        return (
            node.files.last_operations is not None
            or node.name in self.bad_disks
            or self.is_reserved(node)
        )

    # Brokers for one fault alone.

    def is_reserved(self, node: Node) -> bool:
        return any(node in nodes for nodes, _ in self._reserved)

    def may_reserve(self, nodes: list[Node]) -> bool:
        """Whether none of these brokers is in trouble already."""
        return not any(self._is_armed(node) for node in nodes)

    def reserve(
        self, seconds: float, nodes: list[Node], end: Callable[[], object]
    ) -> Callable[[], None]:
        """Keep other faults of disks away from brokers for so long; then call `end` once.

        That comes earlier at the end of all faults, or by the function that is returned.
        """
        entry = nodes, end
        self._reserved.append(entry)
        self.cluster.simulation.scheduler.after(seconds, self._release, entry)
        return lambda: self._release(entry)

    def release_all(self) -> None:
        """End what the faults of reserved brokers do."""
        for entry in list(self._reserved):
            self._release(entry)

    def _release(self, entry: tuple[list[Node], Callable[[], object]]) -> None:
        if entry in self._reserved:
            self._reserved.remove(entry)
            entry[1]()

    # Bad disks.

    def replace_disk(self, node: Node) -> None:
        """Replace a log dir and restart the broker, as its operator does.

        A partition that left and came back meanwhile lies in both dirs: a broker refuses to start
        then and asks for one to be moved away (as Kafka does), so the older copy is.
        """
        folder = self.bad_disks.pop(node.name, None)
        if folder is None:
            return
        node.disk.mend()
        node.disk.evict()  # its machine is restarted: what never reached the disk is gone
        node.crash()
        ours = self._partitions_in(node, folder)
        for other in self.cluster.processes.log_dirs:
            if other != folder:
                for name in sorted(ours & self._partitions_in(node, other)):
                    node.disk.wipe(f"{folder}/{name}")
                    node.disk.folders.discard(f"{folder}/{name}")
        node.boot_if_down()

    @staticmethod
    def _partitions_in(node: Node, folder: str) -> set[str]:
        inside = folder + "/"
        return {f.removeprefix(inside) for f in node.disk.folders if f.startswith(inside)}
