"""Errors: Kafka's error codes, and one exception tree that carries them.

A failure outside our code is an `OttlaError` with a wire `code`, which the router turns into a
response, once. Asserts are for our own bugs. Codes and retriability are those of Kafka 3.9's
`Errors`.
"""

import errno
from collections.abc import Sequence
from enum import IntEnum

from ottla.model.printable import plural


class ErrorCode(IntEnum):
    """Kafka's error codes, as a response carries them (int16)."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127

    @classmethod
    def _missing_(cls, value: object) -> "ErrorCode":
        """Map a code that is not in the table to UNKNOWN_SERVER_ERROR, as Kafka does."""
        del value
        return cls.UNKNOWN_SERVER_ERROR


def error_name(code: int) -> str:
    """Return Kafka's name of an error code, or its number where it is newer than us."""
    known = ErrorCode(code)
    return known.name if known == code else f"error {code}"


RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    }
)
"""Codes after which a client may try the same request again."""


class OttlaError(Exception):
    """A failure outside our code. The message is one clear line for a person."""

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    record_errors: Sequence[tuple[int, str]] = ()
    """the refused records of a batch: (index in the batch, reason)"""

    def __init__(self, message: str = "", code: ErrorCode | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code

    @property
    def retriable(self) -> bool:
        return self.code in RETRIABLE


class ConfigError(OttlaError):
    """A setting is unknown, malformed or contradicts another; names the key and the remedy."""

    code = ErrorCode.INVALID_CONFIG


class StartupError(OttlaError):
    """A broker or a tool cannot start: port in use, foreign data folder, Java missing ..."""


class WireError(OttlaError):
    """Bytes that are no message: short, oversized counts, bad UTF-8. The connection closes."""

    code = ErrorCode.INVALID_REQUEST


class UnsupportedVersionError(OttlaError):
    """The API key or version is not served."""

    code = ErrorCode.UNSUPPORTED_VERSION


class CorruptRecordError(OttlaError):
    """A record batch fails its CRC or its structure."""

    code = ErrorCode.CORRUPT_MESSAGE


class InvalidRecordError(OttlaError):
    """A record batch is well-formed but not allowed."""

    code = ErrorCode.INVALID_RECORD


class RecordsRefusedError(InvalidRecordError):
    """Some records of a batch are refused; none of the batch is appended."""

    def __init__(self, record_errors: Sequence[tuple[int, str]], code: ErrorCode) -> None:
        index, why = record_errors[0]
        super().__init__(
            f"{plural(len(record_errors), 'record')} refused, first {index}: {why}", code
        )
        self.record_errors = record_errors


class UnsupportedFormatError(OttlaError):
    """A record batch of magic 0 or 1."""

    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class RecordTooLargeError(OttlaError):
    """A batch or its decompressed content is larger than the topic allows."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class OutOfOrderSequenceError(OttlaError):
    """An idempotent producer skipped a sequence number."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpochError(OttlaError):
    """A producer epoch lower than the newest seen."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class OffsetOutOfRangeError(OttlaError):
    """A read below the log start or beyond the log end."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class NotLeaderError(OttlaError):
    """This broker does not lead the partition."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class FencedLeaderEpochError(OttlaError):
    """The request's leader epoch is older than ours."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class IneligibleReplicaError(OttlaError):
    """A replica may not be let into an ISR: its broker has registered again."""

    code = ErrorCode.INELIGIBLE_REPLICA


class UnknownLeaderEpochError(OttlaError):
    """The request's leader epoch is newer than ours."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class NotEnoughReplicasError(OttlaError):
    """The ISR is smaller than min.insync.replicas; nothing was appended."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class StorageError(OttlaError):
    """A log directory failed; its partitions are offline on this broker."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class OutOfDescriptorsError(OttlaError):
    """No file could be opened (F45); nothing was done, and a retry may succeed.

    No StorageError, since nothing is offline, but with its code, so that clients retry.
    """

    code = ErrorCode.KAFKA_STORAGE_ERROR


class UnknownTopicError(OttlaError):
    """No such topic or partition here."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class InvalidRequestError(OttlaError):
    """A request is well-formed, but what it asks for makes no sense."""

    code = ErrorCode.INVALID_REQUEST


class PolicyViolationError(OttlaError):
    """What is asked for is legal, but not here: a policy or a bound of this broker forbids it."""

    code = ErrorCode.POLICY_VIOLATION


class TopicExistsError(OttlaError):
    """There is a topic of this name already, or one that is being deleted."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidTopicError(OttlaError):
    """A topic's name is not legal, or the topic is internal or being deleted."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class InvalidReplicaAssignmentError(OttlaError):
    """The replicas given for a topic's partitions do not fit the topic or the brokers."""

    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class ReassignmentInProgressError(OttlaError):
    """The topic's replicas are being reassigned."""

    code = ErrorCode.REASSIGNMENT_IN_PROGRESS


class InvalidPartitionsError(OttlaError):
    """A number of partitions that is not allowed."""

    code = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactorError(OttlaError):
    """More replicas than brokers, or none."""

    code = ErrorCode.INVALID_REPLICATION_FACTOR


class ProducerFencedError(OttlaError):
    """A newer producer with the same transactional id exists."""

    code = ErrorCode.PRODUCER_FENCED


class NotControllerError(OttlaError):
    """The broker is not the controller, or no longer; clients ask Metadata who is, and go there."""

    code = ErrorCode.NOT_CONTROLLER


class ControllerMovedError(OttlaError):
    """A higher controller epoch exists: this broker is no longer the controller."""

    code = ErrorCode.STALE_CONTROLLER_EPOCH


class ConnectionLostError(OttlaError):
    """A peer could not be reached, closed the connection or did not respond in time."""

    code = ErrorCode.NETWORK_EXCEPTION


class BrokerNotAliveError(ConnectionLostError):
    """A broker was asked for by its id that is not among the live ones."""


class ServerRefusedError(ConnectionLostError):
    """A server refused to authenticate us, or could not prove itself. Trying again is of no use."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class NotABrokerError(ConnectionLostError):
    """The server there does not speak Kafka's protocol, or does not respond at all."""


OF_SYSTEM = {
    errno.ENOENT: "is the name right?",
    errno.EISDIR: "name a file",
    errno.ENOTDIR: "name a folder",
    errno.EACCES: "use an account that may",
    errno.EPERM: "use an account that may",
    errno.EROFS: "name another place",
    errno.ENOSPC: "free some space there and try again",
    errno.EDQUOT: "free some space there and try again",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}


def of_system(error: OSError) -> str:
    """Return what the system refused and, where one thing helps, what to do about it."""
    text = error.strerror or str(error)
    helps = OF_SYSTEM.get(error.errno or 0)
    return f"{text}; {helps}" if helps else text
