"""What requests about records may touch of the broker."""

from typing import Protocol

from ottla.broker.authorization.request_authorizer import RequestAuthorizer
from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.broker.quotas.client_quotas import ClientQuotas
from ottla.broker.requests.records.batch_checks import BatchChecks
from ottla.broker.tasks import Tasks
from ottla.coordinators.transaction_verifier import TransactionVerifier
from ottla.model.ports import World
from ottla.replication.replica_manager import ReplicaManager


class RecordsServer(Protocol):
    """What Produce and Fetch may touch."""

    authorizer: RequestAuthorizer | None
    world: World
    replicas: ReplicaManager
    metadata: MetadataCache
    quotas: ClientQuotas
    tasks: Tasks
    batch_checks: BatchChecks
    verifier: TransactionVerifier


class OffsetsServer(Protocol):
    """What ListOffsets, OffsetForLeaderEpoch and DeleteRecords may touch."""

    world: World
    replicas: ReplicaManager
