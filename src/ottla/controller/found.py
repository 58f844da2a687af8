"""Found: what `cluster_state` reads, where it is more than one value.

A decider's vocabulary.
"""

from collections.abc import Mapping

import msgspec

from ottla.controller.elections import LogEnd
from ottla.model.cluster import BrokerInfo, LeaderIsrAndControllerEpoch, TopicInfo
from ottla.model.ids import TopicPartition

States = Mapping[TopicPartition, LeaderIsrAndControllerEpoch]
Targets = Mapping[TopicPartition, tuple[int, ...]]
LogEnds = Mapping[TopicPartition, Mapping[int, LogEnd]]


class Stated(msgspec.Struct, frozen=True, omit_defaults=True):
    """What brokers state with their registrations, each as a sorted tuple of broker ids."""

    whole: tuple[int, ...] = ()
    """They started with all logs whole."""
    voiding: tuple[int, ...] = ()
    """As leaders they void the record of eligible replicas before they acknowledge without them."""


class FoundStatements(Stated, frozen=True, omit_defaults=True):
    """What a new controller finds: the same, who states nothing, and the topics with records."""

    unstated: tuple[int, ...] = ()
    eligible_topics: tuple[str, ...] = ()


class FoundTopic(msgspec.Struct, frozen=True):
    """A topic's znode, with its creation and its version."""

    info: TopicInfo
    czxid: int
    version: int


class FoundCluster(msgspec.Struct, frozen=True):
    """What a new controller finds: the names of notifications, the brokers, the topics' names."""

    isr_changes: list[str]
    log_dir_events: list[str]
    brokers: list[BrokerInfo]
    topics: list[str]


class Zxids(msgspec.Struct):
    """The zxids at which states of partitions were written last, and created."""

    written: dict[TopicPartition, int] = {}
    created: dict[TopicPartition, int] = {}
