# Written by `python -m ottla.wire.stubs` from the schema beside it; do not edit.

from typing import ClassVar

from ottla.wire.schema import Message, WireStruct

class OffsetCommitKey(Message):
    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_VERSION: ClassVar[None]

    group: str
    topic: str
    partition: int
    def __init__(
        self,
        *,
        group: str = ...,
        topic: str = ...,
        partition: int = ...,
    ) -> None: ...

class OffsetCommitValue(Message):
    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_VERSION: ClassVar[int]

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    def __init__(
        self,
        *,
        offset: int = ...,
        leader_epoch: int = ...,
        metadata: str = ...,
        commit_timestamp: int = ...,
        expire_timestamp: int = ...,
    ) -> None: ...

class GroupMetadataKey(Message):
    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_VERSION: ClassVar[None]

    group: str
    def __init__(
        self,
        *,
        group: str = ...,
    ) -> None: ...

class GroupMetadataValue(Message):
    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_VERSION: ClassVar[int]

    class MemberMetadata(WireStruct):
        member_id: str
        group_instance_id: str | None
        client_id: str
        client_host: str
        rebalance_timeout: int
        session_timeout: int
        subscription: bytes
        assignment: bytes
        def __init__(
            self,
            *,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            client_id: str = ...,
            client_host: str = ...,
            rebalance_timeout: int = ...,
            session_timeout: int = ...,
            subscription: bytes = ...,
            assignment: bytes = ...,
        ) -> None: ...

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int
    members: list[GroupMetadataValue.MemberMetadata]
    def __init__(
        self,
        *,
        protocol_type: str = ...,
        generation: int = ...,
        protocol: str | None = ...,
        leader: str | None = ...,
        current_state_timestamp: int = ...,
        members: list[GroupMetadataValue.MemberMetadata] = ...,
    ) -> None: ...
