"""What Kafka's error codes mean, in one sentence, for the person who reads a command's output.

Kafka: the messages of `org.apache.kafka.common.protocol.Errors`.
"""

from ottla.model.errors import ErrorCode as E
from ottla.model.errors import OttlaError, error_name

TEXTS = {
    E.UNKNOWN_SERVER_ERROR: "the broker failed with an unexpected error; see its log",
    E.OFFSET_OUT_OF_RANGE: "the log has no such offset",
    E.CORRUPT_MESSAGE: "a batch does not match its checksum",
    E.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    E.LEADER_NOT_AVAILABLE: "the partition has no leader now",
    E.NOT_LEADER_OR_FOLLOWER: "the broker no longer leads or follows the partition",
    E.REQUEST_TIMED_OUT: "the request took longer than its timeout",
    E.BROKER_NOT_AVAILABLE: "the broker is not available",
    E.REPLICA_NOT_AVAILABLE: "the broker has no such replica",
    E.MESSAGE_TOO_LARGE: "a batch is larger than max.message.bytes of the topic",
    E.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still loading its state",
    E.COORDINATOR_NOT_AVAILABLE: "no broker is the coordinator now",
    E.NOT_COORDINATOR: "the coordinator has moved to another broker",
    E.INVALID_TOPIC_EXCEPTION: "this topic name is not allowed",
    E.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas asks for",
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "the records were written to fewer in-sync replicas than "
    "min.insync.replicas asks for",
    E.INVALID_GROUP_ID: "this group id is not allowed",
    E.TOPIC_AUTHORIZATION_FAILED: "no permission for the topic",
    E.GROUP_AUTHORIZATION_FAILED: "no permission for the group",
    E.CLUSTER_AUTHORIZATION_FAILED: "no permission for the cluster",
    E.UNSUPPORTED_VERSION: "the broker does not support this version of the request",
    E.TOPIC_ALREADY_EXISTS: "the topic exists already",
    E.INVALID_PARTITIONS: "this number of partitions is not possible",
    E.INVALID_REPLICATION_FACTOR: "there are fewer live brokers than replicas wanted",
    E.INVALID_REPLICA_ASSIGNMENT: "this assignment of replicas is not possible",
    E.INVALID_CONFIG: "a setting has no such value",
    E.NOT_CONTROLLER: "the broker is not the controller",
    E.INVALID_REQUEST: "the broker refuses the request as invalid",
    E.POLICY_VIOLATION: "a policy of the brokers forbids it",
    E.KAFKA_STORAGE_ERROR: "a log directory of the broker has failed",
    E.LOG_DIR_NOT_FOUND: "the broker has no such log directory",
    E.REASSIGNMENT_IN_PROGRESS: "a reassignment of the partition is in progress",
    E.NON_EMPTY_GROUP: "the group has members",
    E.GROUP_ID_NOT_FOUND: "there is no such group",
    E.TOPIC_DELETION_DISABLED: "the brokers do not delete topics (delete.topic.enable=false)",
    E.PREFERRED_LEADER_NOT_AVAILABLE: "the preferred leader is not alive or not in sync",
    E.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica may become the leader",
    E.ELECTION_NOT_NEEDED: "the partition has the right leader already",
    E.NO_REASSIGNMENT_IN_PROGRESS: "no reassignment of the partition is in progress",
    E.GROUP_SUBSCRIBED_TO_TOPIC: "members of the group are subscribed to the topic",
    E.THROTTLING_QUOTA_EXCEEDED: "the client has exceeded its quota; try again later",
    E.PRODUCER_FENCED: "a newer producer has taken over the transactional id",
    E.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id",
}


WAYS_OUT = {
    E.UNKNOWN_TOPIC_OR_PARTITION: "`ottla topics list` shows those there are",
    E.GROUP_ID_NOT_FOUND: "`ottla groups list` shows those there are",
    E.TRANSACTIONAL_ID_NOT_FOUND: "`ottla txn list` shows those there are",
    E.TOPIC_ALREADY_EXISTS: "`ottla topics alter` changes it, --if-not-exists leaves it as it is",
    E.NON_EMPTY_GROUP: "stop them first",
    E.GROUP_SUBSCRIBED_TO_TOPIC: "stop them first",
}
"""What to do about it, where one thing helps."""


def with_way_out(text: str, code: int) -> str:
    """Return what failed and, where one thing helps, what to do about it."""
    helps = WAYS_OUT.get(E(code)) if E(code) == code else None
    return f"{text}; {helps}" if helps else text


def explained(code: int) -> str:
    """Return what a code means and its name: `the group has members (NON_EMPTY_GROUP)`."""
    text = TEXTS.get(E(code)) if E(code) == code else None
    name = error_name(code)
    return name if text is None else f"{text} ({name})"


def reason(code: int, message: str | None) -> str:
    """Return a broker's own words with Kafka's name of the error."""
    return f"{message.rstrip('.')} ({error_name(code)})" if message else explained(code)


def failure(what: str, code: int) -> OttlaError:
    """Return an error that says what failed and what its code means; it carries the code."""
    return OttlaError(with_way_out(f"{what}: {explained(code)}", code), E(code))
