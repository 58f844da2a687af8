"""Leader hints (KIP-951): who leads a partition that we do not, sent with the error.

Invariants: what replication knows goes before what the metadata cache knows, since LeaderAndIsr may
be ahead of UpdateMetadata; a leader without an address on the client's listener is named without an
endpoint. Kafka: `KafkaApis.getCurrentLeader`.
"""

from typing import TypeVar

from ottla.broker.services import BrokerServices
from ottla.model.ids import NO_EPOCH, NO_LEADER, TopicPartition
from ottla.wire.messages.records import FetchResponse, ProduceResponse

N = TypeVar("N", FetchResponse.NodeEndpoint, ProduceResponse.NodeEndpoint)


def current_leader(server: BrokerServices, topic: str, index: int) -> tuple[int, int]:
    """Return (leader, leader epoch) of a partition, -1s where nothing is known."""
    partition = server.replicas.partitions.get(TopicPartition(topic, index))
    if partition is not None:
        return partition.state.leader, partition.state.leader_epoch
    state = server.metadata.partition(topic, index)
    if state is not None:
        return state.leader, state.leader_epoch
    return NO_LEADER, NO_EPOCH


def name_leader(
    server: BrokerServices,
    listener: str,
    tp: tuple[str, int],
    field: FetchResponse.LeaderIdAndEpoch | ProduceResponse.LeaderIdAndEpoch,
    nodes: list[N],
    node_type: type[N],
) -> None:
    """Fill in a partition's current leader, and its address unless it is there already."""
    leader, epoch = current_leader(server, *tp)
    field.leader_id = leader
    field.leader_epoch = epoch
    if any(node.node_id == leader for node in nodes):
        return
    endpoint = server.metadata.endpoint(leader, listener)
    if endpoint is not None:
        rack = server.metadata.snapshot.brokers[leader].rack
        nodes.append(node_type(node_id=leader, host=endpoint.host, port=endpoint.port, rack=rack))
