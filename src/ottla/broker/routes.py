"""Routes: which handler answers which api key. One line here is all it takes to serve an API.

Who may call: `broker.Broker`, which hands the table to the router.
"""

from collections.abc import Mapping

from ottla.broker.handlers import (
    alter_configs,
    api_versions,
    controller_requests,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    fetch,
    init_producer_id,
    leadership,
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
    21: delete_records.handle,
    22: init_producer_id.handle,
    23: offset_for_leader_epoch.handle,
    32: describe_configs.handle,
    33: alter_configs.replace_all,
    35: describe_log_dirs.handle,
    37: create_partitions.handle,
    43: leadership.elect_leaders,
    44: alter_configs.change_some,
    45: leadership.alter_reassignments,
    46: leadership.list_reassignments,
    56: controller_requests.alter_partition,
    60: describe_cluster.handle,
    67: controller_requests.allocate_producer_ids,
}
