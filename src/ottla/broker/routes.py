"""Routes: which handler answers which api key. One line here is all it takes to serve an API.

Who may call: `broker.Broker`, which hands the table to the router.
"""

from collections.abc import Mapping

from ottla.broker.handlers import (
    api_versions,
    controller_requests,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    fetch,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
    replica_control,
    update_metadata,
)
from ottla.broker.router import Handle

HANDLERS: Mapping[int, Handle] = {
    0: produce.handle,
    1: fetch.handle,
    2: list_offsets.handle,
    3: metadata.handle,
    4: replica_control.leader_and_isr,
    5: replica_control.stop_replica,
    6: update_metadata.handle,
    7: controller_requests.controlled_shutdown,
    18: api_versions.handle,
    19: create_topics.handle,
    20: delete_topics.handle,
    22: init_producer_id.handle,
    23: offset_for_leader_epoch.handle,
    32: describe_configs.handle,
    56: controller_requests.alter_partition,
    60: describe_cluster.handle,
    67: controller_requests.allocate_producer_ids,
}
