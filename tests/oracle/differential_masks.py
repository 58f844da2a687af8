"""What may differ in many scenarios at once: a line each, with its reason."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mask:
    """Of which key (None: all), versions and scenario (None: all) a path may differ, and why."""

    path: str
    reason: str
    key: int | None = None
    scenario: str | None = None
    low: int = 0
    high: int = 99


OLD_FORMATS = "record formats 0 and 1 are not served: docs/COMPATIBILITY.md"
BY_SCALA = "Scala's way to print a list"
MEMBERS = "a member's id is random"
NAMED_TWICE = "a group that is named twice is described once: docs/COMPATIBILITY.md"
MASKS: tuple[Mask, ...] = (
    Mask("member_id", MEMBERS, key=11),
    Mask("error_message", "Kafka's of any malformed request", key=10, scenario="of kind"),
    Mask(
        "coordinators[].error_message",
        "Kafka's of any malformed request",
        key=10,
        scenario="of kind",
    ),
    Mask("groups", "sessions end amid the run; rows above compare groups", key=16),
    Mask("*", "Kafka fails within; ours takes it for 0", key=1, scenario="max bytes negative"),
    Mask("*", "Kafka fails within; ours INVALID_REQUEST", key=48, scenario="match type 7"),
    Mask("entries[].entity", "ours names what was asked", key=49, scenario="same kind twice"),
    Mask("entries", "ours matches any name", key=48, scenario="any with a name"),
    Mask(
        "*",
        "ours UNSUPPORTED_COMPRESSION_TYPE, Kafka's fails within",
        key=0,
        scenario="unknown codec",
    ),
    Mask("*", "ours INVALID_RECORD, Kafka fails within", key=0, scenario="broken"),
    Mask(
        "responses[].partition_responses[].record_errors[].batch_index_error_message",
        "in our words",
        key=0,
        scenario="keyless",
    ),
    Mask("*", "the list of keys is shorter", key=-1, scenario="no UTF-8", low=-1),
    Mask("leader", MEMBERS, key=11),
    Mask("members[].member_id", MEMBERS, key=11),
    Mask("topics[].topic_id", "made on demand, at random", key=3, scenario="null topics"),
    Mask(
        "results",
        "Kafka fails within on an empty salted password; ours says so",
        key=51,
        scenario="empty salt",
    ),
    Mask("groups", NAMED_TWICE, key=9, scenario="the same twice"),
    Mask("groups", NAMED_TWICE, key=15, scenario="twice"),
    Mask("*", "Kafka never answers it", key=33, scenario="the same twice"),
    Mask("*", "Kafka fails within and answers without brokers", key=3, scenario="by zero id"),
    Mask("*", "Kafka fails within; ours says INVALID_REQUEST", key=44, scenario="operation 9"),
    Mask("*", "Kafka fails within; ours says INVALID_REQUEST", key=44, scenario="operation -1"),
    Mask("*", "Kafka fails within; nothing matches here", key=48, scenario="exactly null"),
    Mask(
        "*", "garbage as client id is counted, not compared", key=-1, scenario="a negative", low=-1
    ),
    Mask("responses[].partitions[].error_message", BY_SCALA, key=45),
    Mask("topics[].error_message", BY_SCALA, key=19, scenario="assigned twice to one"),
    Mask("*", "no replicas: refused by ours", key=19, scenario="assigned to nobody"),
    Mask("*", "Kafka fails within; ours names the mistake", key=19, scenario="from -1"),
    Mask(
        "results[].error_message", "Kafka's of any malformed request; ours names the kind", key=32
    ),
    Mask("responses", OLD_FORMATS, key=1, high=3),
    Mask("responses", OLD_FORMATS, key=0, high=2),
    Mask("session_id", "drawn by chance", key=1),
    Mask(
        "topics",
        "ours tells version 1, too, that it asks the wrong broker",
        key=9,
        scenario="offsets of",
        low=1,
        high=1,
    ),
    Mask(
        "results",
        "Kafka keeps an empty group of refused offsets of a transaction for a while",
        key=42,
        scenario="delete ",
        high=0,
    ),
    Mask(
        "replica_election_results[].partition_result[].error_message",
        "ours says why",
        key=43,
        scenario="a broker dies",
    ),
    Mask("producer_id", "each cluster hands out its own", key=22),
    Mask("transaction_states[].producer_id", "each cluster hands out its own", key=66),
    Mask("transaction_states[].producer_id", "each cluster hands out its own", key=65),
    Mask("topics[].topic_id", "made by the cluster itself, at random", key=3, scenario="internal"),
    Mask("*", "Kafka never answers it", key=0, scenario="null records"),
    Mask(
        "responses[].partition_responses[].log_append_time_ms",
        "the time of the append",
        key=0,
        scenario="log append time",
    ),
    Mask(
        "responses[].partition_responses[].error_message",
        "ours says what is wrong with the batch, Kafka sends null",
        key=0,
    ),
    Mask("results[].total_bytes", "the disk's", key=35),
    Mask("results[].usable_bytes", "the disk's", key=35),
    Mask(
        "results[].topics[].partitions[].partition_size",
        "internal topics are made at other times; chosen topics are compared",
        key=35,
        scenario="null topics",
    ),
    Mask(
        "results[].topics[].partitions[].partition_size",
        "internal topics are made at other times; chosen topics are compared",
        key=35,
        scenario="count -2",
    ),
)


class _General:
    def masks_of(self, key: int, version: int, name: str) -> tuple[str, ...]:
        return tuple(
            f"{m.path}: {m.reason}"
            for m in MASKS
            if (m.key is None or m.key == key)
            and m.low <= version <= m.high
            and (m.scenario is None or m.scenario in name)
        )

    def group_of(self, key: int, name: str) -> int:
        """Return which scenarios run together, version by version, and when."""
        if name == "made on demand":
            return 99
        return {0: 90, 1: 0, 20: 91}.get(key, key + (key == 48) * 2)


GENERAL = _General()
