"""Routes: which handler answers which api key. One line here is all it takes to serve an API.

Who may call: `broker.Broker`, which hands the table to the router.
"""

from collections.abc import Mapping

from ottla.broker.requests.cluster import (
    alter_replica_log_dirs,
    api_versions,
    describe_cluster,
    describe_log_dirs,
    metadata,
    update_features,
)
from ottla.broker.requests.configs import alter_configs, client_quota_requests, describe_configs
from ottla.broker.requests.control import controller_requests, replica_control, update_metadata
from ottla.broker.requests.groups import (
    find_coordinator,
    group_admin,
    group_membership,
    group_offsets,
)
from ottla.broker.requests.records import (
    delete_records,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from ottla.broker.requests.router import Handle
from ottla.broker.requests.topics import create_partitions, create_topics, delete_topics, leadership
from ottla.broker.requests.transactions import (
    init_producer_id,
    producer_transactions,
    transaction_admin,
    transaction_markers,
)

HANDLERS: Mapping[int, Handle] = {
    0: produce.handle,
    1: fetch.handle,
    2: list_offsets.handle,
    3: metadata.handle,
    4: replica_control.leader_and_isr,
    5: replica_control.stop_replica,
    6: update_metadata.handle,
    7: controller_requests.controlled_shutdown,
    8: group_offsets.offset_commit,
    9: group_offsets.offset_fetch,
    10: find_coordinator.handle,
    11: group_membership.join_group,
    12: group_membership.heartbeat,
    13: group_membership.leave_group,
    14: group_membership.sync_group,
    15: group_admin.describe_groups,
    16: group_admin.list_groups,
    18: api_versions.handle,
    19: create_topics.handle,
    20: delete_topics.handle,
    21: delete_records.handle,
    22: init_producer_id.handle,
    23: offset_for_leader_epoch.handle,
    24: producer_transactions.add_partitions,
    25: producer_transactions.add_offsets,
    26: producer_transactions.end_txn,
    27: transaction_markers.handle,
    28: producer_transactions.txn_offset_commit,
    32: describe_configs.handle,
    33: alter_configs.replace_all,
    34: alter_replica_log_dirs.handle,
    35: describe_log_dirs.handle,
    37: create_partitions.handle,
    42: group_admin.delete_groups,
    43: leadership.elect_leaders,
    44: alter_configs.change_some,
    45: leadership.alter_reassignments,
    46: leadership.list_reassignments,
    47: group_offsets.offset_delete,
    48: client_quota_requests.describe,
    49: client_quota_requests.alter,
    56: controller_requests.alter_partition,
    57: update_features.handle,
    60: describe_cluster.handle,
    61: transaction_admin.describe_producers,
    65: transaction_admin.describe_transactions,
    66: transaction_admin.list_transactions,
    67: controller_requests.allocate_producer_ids,
}
