"""Topics: the requests that create and delete them, and ask for them.

Pure, but for `change`, which waits.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from ottla.client.error_texts import reason
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import topic_name_problem
from ottla.testing.settings import as_text
from ottla.testing.waiting import RefusedError, until
from ottla.wire.messages.cluster import MetadataRequest, MetadataResponse
from ottla.wire.messages.topics import CreateTopicsRequest, DeleteTopicsRequest

RETRIED = {
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.INVALID_REPLICATION_FACTOR,
}
"""Of CreateTopics, while the cluster changes: a broker that has just started may not count yet."""

__tracebackhide__ = True


def creation(
    name: str,
    partitions: int,
    replicas: int,
    configs: Mapping[str, object],
    timeout_s: float,
    *,
    validate_only: bool = False,
) -> CreateTopicsRequest:
    """Return what creates a topic; `configs` with `_` for `.`. OttlaError for a bad name."""
    problem = topic_name_problem(name)
    if problem:
        raise OttlaError(f"topic name: {problem}")
    entry = CreateTopicsRequest.CreatableTopicConfig
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[
            entry(name=key.replace("_", "."), value=as_text(value))
            for key, value in configs.items()
        ],
    )
    return CreateTopicsRequest(
        topics=[topic], timeout_ms=int(timeout_s * 1000), validate_only=validate_only
    )


def deletion(name: str, timeout_s: float) -> DeleteTopicsRequest:
    """Return what deletes a topic."""
    topic = DeleteTopicsRequest.DeleteTopicState(name=name)
    return DeleteTopicsRequest(topics=[topic], timeout_ms=int(timeout_s * 1000))


def about(topics: list[str] | None) -> MetadataRequest:
    """Return a question for these topics, all for None, which creates none of them."""
    item = MetadataRequest.MetadataRequestTopic
    wanted = None if topics is None else [item(name=t) for t in topics]
    return MetadataRequest(topics=wanted, allow_auto_topic_creation=False)


def sync_problem(response: MetadataResponse) -> str:
    """Return what is not in sync by a Metadata response; "" if all is."""
    for topic in response.topics:
        for part in topic.partitions:
            missing = sorted(set(part.replica_nodes) - set(part.isr_nodes))
            name = f"{topic.name}-{part.partition_index}"
            if part.leader_id < 0:
                return f"{name} has no leader"
            if missing:
                return f"{name} lacks the replicas {missing}"
    return ""


def change(
    ask: Callable[[float], Any], done: ErrorCode, timeout_s: float, what: str, how: str
) -> None:
    """Ask for a change until it is made; the last refusal is raised if it never is.

    `ask` takes how many seconds are left. `done`: what is refused where the change was made by
    an attempt that got no response, or one that was to be repeated.
    """
    deadline = time.monotonic() + timeout_s
    maybe_made = False
    refusal: RefusedError | None = None

    def attempt() -> bool:
        nonlocal maybe_made, refusal
        try:
            result = ask(max(0.1, deadline - time.monotonic()))
        except OttlaError:
            maybe_made = True
            raise
        code = result.error_code
        if not code or (maybe_made and code == done):
            return True
        why = reason(code, result.error_message)
        refusal = RefusedError(f"{what} was not {how}: {why}", ErrorCode(code))
        maybe_made = maybe_made or code in RETRIED
        if code in RETRIED and time.monotonic() < deadline:
            return False
        raise refusal

    try:
        until(attempt, timeout_s, f"{what} is {how}")
    except OttlaError:
        if refusal is None:
            raise
        raise refusal from None
