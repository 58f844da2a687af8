# Written by `python -m ottla.wire.stubs` from the schema beside it; do not edit.

from typing import ClassVar

from ottla.wire.schema import Message, WireStruct

class TransactionLogKey(Message):
    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_VERSION: ClassVar[None]

    transactional_id: str
    def __init__(
        self,
        *,
        transactional_id: str = ...,
    ) -> None: ...

class TransactionLogValue(Message):
    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_VERSION: ClassVar[int]

    class PartitionsSchema(WireStruct):
        topic: str
        partition_ids: list[int]
        def __init__(
            self,
            *,
            topic: str = ...,
            partition_ids: list[int] = ...,
        ) -> None: ...

    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_status: int
    transaction_partitions: list[TransactionLogValue.PartitionsSchema] | None
    transaction_last_update_timestamp_ms: int
    transaction_start_timestamp_ms: int
    def __init__(
        self,
        *,
        producer_id: int = ...,
        producer_epoch: int = ...,
        transaction_timeout_ms: int = ...,
        transaction_status: int = ...,
        transaction_partitions: list[TransactionLogValue.PartitionsSchema] | None = ...,
        transaction_last_update_timestamp_ms: int = ...,
        transaction_start_timestamp_ms: int = ...,
    ) -> None: ...
