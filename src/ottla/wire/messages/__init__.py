"""One module per family of `broker.requests`: the schema of each of its messages, as text.

The request and response classes are made from it at their first use; `ottla.wire.apis` says which
API is where. Types for checkers are in the `.pyi` beside each module, written by
`python -m ottla.wire.stubs`. Up to 0.1 each message had a module of its own: scripts that import
`ottla.wire.messages.fetch` still find its classes there.
"""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

FAMILIES = "cluster configs control groups records security topics transactions"
MODULES_UP_TO_0_1 = """
add_offsets_to_txn add_partitions_to_txn allocate_producer_ids alter_client_quotas alter_configs
alter_partition alter_partition_reassignments alter_replica_log_dirs
alter_user_scram_credentials api_versions consumer_group_describe consumer_group_heartbeat
consumer_protocol controlled_shutdown create_acls create_delegation_token create_partitions
create_topics delete_acls delete_groups delete_records delete_topics describe_acls
describe_client_quotas describe_cluster describe_configs describe_delegation_token
describe_groups describe_log_dirs describe_producers describe_share_group_offsets
describe_transactions describe_user_scram_credentials elect_leaders end_txn envelope
expire_delegation_token fetch find_coordinator group_records heartbeat incremental_alter_configs
init_producer_id join_group leader_and_isr leave_group list_groups list_offsets
list_partition_reassignments list_transactions metadata offset_commit offset_delete offset_fetch
offset_for_leader_epoch produce renew_delegation_token sasl_authenticate sasl_handshake
share_group_describe stop_replica streams_group_describe sync_group transaction_records
txn_offset_commit update_features update_metadata write_txn_markers
"""


class _Message(ModuleType):
    """A path of before: each of its names is looked up in the families."""

    def __getattr__(self, name: str) -> object:
        for family in FAMILIES.split():
            found: object = getattr(import_module(f"{__name__}.{family}"), name, None)
            if found is not None:
                return found
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


class _Paths:
    """Finds those paths where Python has found no file; makes nothing before one is imported."""

    @classmethod
    def find_spec(cls, name: str, *_args: object) -> ModuleSpec | None:
        package, _dot, module = name.rpartition(".")
        old = package == __name__ and module in MODULES_UP_TO_0_1.split()
        return ModuleSpec(name, cls) if old else None  # type: ignore[arg-type]  # as Python's own

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        return _Message(spec.name)

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Do nothing: its names are made when they are asked for."""


sys.meta_path.append(_Paths)
