# Written by `python -m ottla.wire.stubs` from the schema beside it; do not edit.

from typing import ClassVar

from ottla.wire.schema import Message, WireStruct

class ConsumerProtocolSubscription(Message):
    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_VERSION: ClassVar[None]

    class TopicPartition(WireStruct):
        topic: str
        partitions: list[int]
        def __init__(
            self,
            *,
            topic: str = ...,
            partitions: list[int] = ...,
        ) -> None: ...

    topics: list[str]
    user_data: bytes | None
    owned_partitions: list[ConsumerProtocolSubscription.TopicPartition]
    generation_id: int
    rack_id: str | None
    def __init__(
        self,
        *,
        topics: list[str] = ...,
        user_data: bytes | None = ...,
        owned_partitions: list[ConsumerProtocolSubscription.TopicPartition] = ...,
        generation_id: int = ...,
        rack_id: str | None = ...,
    ) -> None: ...

class ConsumerProtocolAssignment(Message):
    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_VERSION: ClassVar[None]

    class TopicPartition(WireStruct):
        topic: str
        partitions: list[int]
        def __init__(
            self,
            *,
            topic: str = ...,
            partitions: list[int] = ...,
        ) -> None: ...

    assigned_partitions: list[ConsumerProtocolAssignment.TopicPartition]
    user_data: bytes | None
    def __init__(
        self,
        *,
        assigned_partitions: list[ConsumerProtocolAssignment.TopicPartition] = ...,
        user_data: bytes | None = ...,
    ) -> None: ...
