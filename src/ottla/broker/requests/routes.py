"""Routes: the APIs that this broker serves, one line each. What each is, its entry says."""

from ottla.broker.requests.api import AnyApi
from ottla.broker.requests.cluster import (
    api_versions,
    log_dirs,
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
    offsets,
    produce,
)
from ottla.broker.requests.security import acls, delegation_tokens, sasl, scram_users
from ottla.broker.requests.topics import (
    create_partitions,
    create_topics,
    delete_topics,
    leadership,
)
from ottla.broker.requests.transactions import (
    init_producer_id,
    producer_transactions,
    transaction_admin,
    transaction_markers,
)

_APIS: tuple[AnyApi, ...] = (
    produce.PRODUCE,
    fetch.FETCH,
    offsets.LIST_OFFSETS,
    metadata.METADATA,
    replica_control.LEADER_AND_ISR,
    replica_control.STOP_REPLICA,
    update_metadata.UPDATE_METADATA,
    controller_requests.CONTROLLED_SHUTDOWN,
    group_offsets.OFFSET_COMMIT,
    group_offsets.OFFSET_FETCH,
    find_coordinator.FIND_COORDINATOR,
    group_membership.JOIN_GROUP,
    group_membership.HEARTBEAT,
    group_membership.LEAVE_GROUP,
    group_membership.SYNC_GROUP,
    group_admin.DESCRIBE_GROUPS,
    group_admin.LIST_GROUPS,
    sasl.SASL_HANDSHAKE,
    api_versions.API_VERSIONS,
    create_topics.CREATE_TOPICS,
    delete_topics.DELETE_TOPICS,
    delete_records.DELETE_RECORDS,
    init_producer_id.INIT_PRODUCER_ID,
    offsets.OFFSET_FOR_LEADER_EPOCH,
    producer_transactions.ADD_PARTITIONS_TO_TXN,
    producer_transactions.ADD_OFFSETS_TO_TXN,
    producer_transactions.END_TXN,
    transaction_markers.WRITE_TXN_MARKERS,
    producer_transactions.TXN_OFFSET_COMMIT,
    acls.DESCRIBE_ACLS,
    acls.CREATE_ACLS,
    acls.DELETE_ACLS,
    describe_configs.DESCRIBE_CONFIGS,
    alter_configs.ALTER_CONFIGS,
    log_dirs.ALTER_REPLICA_LOG_DIRS,
    log_dirs.DESCRIBE_LOG_DIRS,
    sasl.SASL_AUTHENTICATE,
    create_partitions.CREATE_PARTITIONS,
    delegation_tokens.CREATE_DELEGATION_TOKEN,
    delegation_tokens.RENEW_DELEGATION_TOKEN,
    delegation_tokens.EXPIRE_DELEGATION_TOKEN,
    delegation_tokens.DESCRIBE_DELEGATION_TOKEN,
    group_admin.DELETE_GROUPS,
    leadership.ELECT_LEADERS,
    alter_configs.INCREMENTAL_ALTER_CONFIGS,
    leadership.ALTER_PARTITION_REASSIGNMENTS,
    leadership.LIST_PARTITION_REASSIGNMENTS,
    group_offsets.OFFSET_DELETE,
    client_quota_requests.DESCRIBE_CLIENT_QUOTAS,
    client_quota_requests.ALTER_CLIENT_QUOTAS,
    scram_users.DESCRIBE_USER_SCRAM_CREDENTIALS,
    scram_users.ALTER_USER_SCRAM_CREDENTIALS,
    controller_requests.ALTER_PARTITION,
    update_features.UPDATE_FEATURES,
    metadata.DESCRIBE_CLUSTER,
    transaction_admin.DESCRIBE_PRODUCERS,
    transaction_admin.DESCRIBE_TRANSACTIONS,
    transaction_admin.LIST_TRANSACTIONS,
    controller_requests.ALLOCATE_PRODUCER_IDS,
    group_admin.CONSUMER_GROUP_HEARTBEAT,
    group_admin.SHARE_GROUP_HEARTBEAT,
)

ROUTES: dict[int, AnyApi] = {int(api.key): api for api in _APIS}
"""By API key."""
