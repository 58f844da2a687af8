"""What the nemesis needs of a cluster: the nodes it may break, and what it may look at.

Invariants: looking changes nothing.
"""

from collections.abc import Collection
from typing import Protocol

from ottla.model.ids import TopicPartition
from ottla.sim.bit_flips import BitFlips
from ottla.sim.world import Node, Simulation
from ottla.sim.zookeeper_node import ZooKeeperNode


class Target(Protocol):
    """A cluster, as the nemesis sees it and deals with it."""

    simulation: Simulation

    def broker_nodes(self) -> list[Node]: ...

    def zookeeper_node(self) -> Node: ...

    def start_second(self, node: Node) -> Node:
        """Start a second process of a broker's id on a copy of its disk; return its node."""
        ...

    def end_second(self, node: Node, second: Node) -> None:
        """End a second process; if it has the registration, the broker goes on with its disk."""
        ...

    def set_min_isr(self, scope: str, where: str, value: int | None) -> None:
        """Have min.insync.replicas set, or no value of its own (None).

        `scope` is "default", "broker" or "topic", `where` the broker or the topic.
        """
        ...

    def judged_znodes(self) -> dict[str, bytes | None]:
        """Return what ZooKeeper has of all that is judged, and how far producer ids are given."""
        ...

    def topic_ids(self) -> set[str]:
        """Return the ids of the topics there are by ZooKeeper."""
        ...

    def deletions(self) -> set[str]:
        """Return the topics that are being deleted."""
        ...

    def note_forgotten(self) -> None:
        """Note which replicas ZooKeeper does not know of any more: they must be kept."""
        ...

    def restart_gracefully(self, node: Node) -> None: ...

    def expire_session(self, node: Node) -> bool: ...

    def lose_zookeeper_message(self, *, reply: bool) -> None: ...

    @property
    def zk(self) -> ZooKeeperNode: ...

    @property
    def log_dirs(self) -> tuple[str, ...]: ...

    def all_in_sync(self) -> bool: ...

    def caught_up(self, node: Node) -> bool: ...

    def whole_everywhere(self, victims: Collection[Node], lacking: Collection[Node]) -> bool: ...

    def regained(self, node: Node, lacking: Collection[Node]) -> bool: ...

    @property
    def watched(self) -> list[TopicPartition]: ...

    @property
    def bit_flips(self) -> BitFlips: ...

    def leader_and_isr(self, tp: TopicPartition) -> tuple[int, list[int]] | None:
        """Return what ZooKeeper says of a partition."""
        ...

    def segment_paths(self, node: Node, tp: TopicPartition) -> list[str]:
        """Return the segment files of a replica on a broker's disk, sorted."""
        ...

    def replica_ends(self, tp: TopicPartition) -> dict[int, int]:
        """Return the offset after the last record on each broker's disk."""
        ...

    def controller_node(self) -> Node | None: ...

    def reassign(self, tp: TopicPartition, replicas: list[int] | None) -> bool:
        """Have the mover ask to move a partition (None: cancel); False if there is no mover."""
        ...

    def topics(self) -> set[str]:
        """Return the topics there are by ZooKeeper."""
        ...

    def topic_brokers(self) -> dict[str, set[int]]:
        """Return the topics there are by ZooKeeper, and which brokers have a replica of each."""
        ...

    def started(self, node: Node) -> bool:
        """Whether a broker runs and has said that it has started."""
        ...
