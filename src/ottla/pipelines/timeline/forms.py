"""Forms: how each line of state-change.log is written; Kafka's before 1.0, its later ones, ours.

Invariants: pure; a pattern takes a whole line, and tells no digit from another outside the time
(`templates` rests on it). Lines are those of log4j's pattern `[%d] %p %m (%c)`. Until Kafka 0.11 a
message begins with `Broker 1` or `Controller 1 epoch 2` and names a partition `[t,0]`; later ones
begin with `[Broker id=1]` or `[Controller id=1 epoch=2]` and name it `t-0`. Kafka: the texts of
`ReplicaManager`, `Partition`, `MetadataCache`, `ControllerChannelManager` and both state machines,
0.8.2 to 3.9.
"""

from typing import NamedTuple

from ottla.pipelines.timeline import events as e

_HEAD = (
    r"^\[?(?P<second>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(?P<ms>\d\d\d)\]? (?P<level>[A-Z]+) (?:"
    r"\[(?P<role1>Broker|Controller) id=(?P<id1>-?\d+)(?: epoch=(?P<own1>\d+))?\]|"
    r"(?P<role2>Broker|Controller) (?P<id2>\d+)(?: epoch (?P<own2>\d+))?):? ?"
)
_LEGAL = r"[A-Za-z0-9._-]+"
_NAME = rf"(?:\[(?P<t1>{_LEGAL}), ?(?P<p1>\d+)\]|(?P<t2>{_LEGAL})-(?P<p2>\d+))"
_STATE = (
    r"leader=(?P<leader>-?\d+), leaderEpoch=(?P<le>-?\d+), isr(?:WithBrokerEpoch)?="
    r"\[?(?P<isr>[\d, ]*\d|List\(.*?\)\)?|)\]?"
    r"(?:, leaderRecoveryState=\w+)?, (?:zkVersion|partitionEpoch)=(?P<version>-?\d+)"
)
_OLD_STATE = (
    r"Leader:(?P<leader>-?\d+),ISR:(?P<isr>[\d,]*)(?:,LeaderRecoveryState:\w+)?,"
    r"LeaderEpoch:(?P<le>-?\d+)"
)
_TOPIC = r"topicName='(?P<t2>[^']+)', partitionIndex=(?P<p2>\d+), "
_ANY_TOPIC = r"(?:topicName='[^']+', partitionIndex=\d+, )?"
_BY = r"controller (?P<about>-?\d+) epoch (?P<request>\d+)"
_MOVE = rf"[Cc]hanged partition {_NAME} (?:state )?from (?P<before>\w+) to (?P<after>\w+)"
_PREVIOUS = r"[Pp]revious leader epoch was (?P<previous>-?\d+)"

COLUMNS = {
    "second": ("second",),
    "ms": ("ms",),
    "level": ("level",),
    "role": ("role1", "role2"),
    "broker": ("id1", "id2"),
    "epoch": ("request", "request2", "own1", "own2"),
    "topic": ("t1", "t2"),
    "partition": ("p1", "p2"),
    "leader": ("leader",),
    "leader_epoch": ("le",),
    "isr": ("isr",),
    "version": ("version",),
    "previous": ("previous",),
    "topic_id": ("topicid",),
    "about": ("about",),
    "before": ("before",),
    "after": ("after",),
    "offset": ("offset",),
}
"""Which groups give a column: at most one of them takes part in a match, and none is no value."""


class Form(NamedTuple):
    """Lines that hold `needle` and match `pattern` are of a kind; `pattern` has named groups."""

    kind: str
    needle: str
    pattern: str


def _form(kind: str, needle: str, body: str) -> Form:
    return Form(kind, needle, _HEAD + body + "$")


FORMS = (
    _form(
        e.CACHED,
        "Cached leader info ",
        rf"Cached leader info \w+\({_ANY_TOPIC}controllerEpoch=\d+, {_STATE}[^)]*\) for partition "
        rf"{_NAME} in response to UpdateMetadata request sent by {_BY}.*",
    ),
    _form(
        e.ASKED,
        "Received LeaderAndIsr request LeaderAndIsrPartitionState(",
        rf"Received LeaderAndIsr request \w+\({_TOPIC}controllerEpoch=\d+, {_STATE}[^)]*\) "
        rf"correlation id \d+ from {_BY}.*",
    ),
    _form(
        e.LED,
        "] Leader ",
        rf"Leader {_NAME} (?:with topic id (?:Some\((?P<topicid>[^)]*)\)|None) )?starts at leader "
        r"epoch (?P<le>-?\d+) from offset (?P<offset>-?\d+) with (?:partition epoch "
        r"(?P<version>-?\d+), )?high watermark \d+,? ISR \[(?P<isr>[\d,]*)\].*" + _PREVIOUS + ".*",
    ),
    _form(
        e.FOLLOWED,
        "] Follower ",
        rf"Follower {_NAME} starts at leader epoch (?P<le>-?\d+) from offset (?P<offset>-?\d+) "
        r"with (?:partition epoch (?P<version>-?\d+) and )?high watermark \d+\."
        r"(?: Current leader is (?P<leader>-?\d+)\.)?.*" + _PREVIOUS + ".*",
    ),
    _form(e.DECIDED, " with state LeaderAndIsr(", rf"{_MOVE} with state LeaderAndIsr\({_STATE}.*"),
    _form(
        e.SENT,
        " LeaderAndIsr request LeaderAndIsrPartitionState(",
        rf"Sending become-\w+ LeaderAndIsr request \w+\({_TOPIC}controllerEpoch=\d+, "
        rf"{_STATE}[^)]*\) to broker (?P<about>\d+) .*",
    ),
    _form(
        e.DECIDED,
        " after removing replica ",
        rf"Partition {_NAME} state changed to \({_OLD_STATE}.* after removing replica .*",
    ),
    _form(
        e.CACHED,
        " partitions from metadata cache in response to ",
        rf"Add \d+ partitions and deleted \d+ partitions from metadata cache .* {_BY}.*",
    ),
    # Kafka 1.0 to 2.3: states without the topic's name
    _form(
        e.ASKED,
        "Received LeaderAndIsr request PartitionState(",
        rf"Received LeaderAndIsr request PartitionState\(controllerEpoch=\d+, {_STATE}[^)]*\) "
        rf"correlation id \d+ from {_BY} for partition {_NAME}.*",
    ),
    _form(
        e.SENT,
        " LeaderAndIsr request PartitionState(",
        rf"Sending become-\w+ LeaderAndIsr request PartitionState\(controllerEpoch=\d+, "
        rf"{_STATE}[^)]*\) to broker (?P<about>\d+) for partition {_NAME}.*",
    ),
    # Kafka 0.8 to 1.0: states as `(Leader:1,ISR:1,2,LeaderEpoch:0,ControllerEpoch:1)`
    _form(
        e.CACHED,
        "ached leader info ",
        rf"[Cc]ached leader info .*?{_OLD_STATE}.*? for partition {_NAME} in response to "
        rf".* {_BY}.*",
    ),
    _form(
        e.ASKED,
        "eceived LeaderAndIsr request ",
        rf"[Rr]eceived LeaderAndIsr request .*?{_OLD_STATE}.* from {_BY} for partition {_NAME}.*",
    ),
    _form(
        e.SENT,
        "ending become-",
        rf"[Ss]ending become-\w+ LeaderAndIsr request .*?{_OLD_STATE}.* to broker (?P<about>\d+) "
        rf"for partition {_NAME}.*",
    ),
    _form(
        e.DECIDED, " to OnlinePartition with leader ", rf"{_MOVE} with leader (?P<leader>-?\d+).*"
    ),
    # Kafka before 2.8 has no line of its own where a role begins but these, at TRACE
    _form(
        e.LED,
        " for the become-leader transition for partition ",
        rf"[Cc]ompleted LeaderAndIsr request .* {_BY} for the become-leader transition for "
        rf"partition {_NAME}.*",
    ),
    _form(
        e.FOLLOWED,
        " for the become-follower transition for partition ",
        rf"[Cc]ompleted LeaderAndIsr request .* {_BY} for the become-follower transition for "
        rf"partition {_NAME}.*",
    ),
    _form(e.MOVED, "hanged partition ", rf"{_MOVE}(?: .*)?"),
    _form(
        e.REFUSED,
        "gnoring ",
        r"[Ii]gnoring .*?controller (?P<about>-?\d+) with correlation id \d+ (?:epoch "
        rf"(?P<request>\d+) for partition {_NAME}.*|since its controller epoch "
        r"(?P<request2>\d+) is old.*)",
    ),
    _form(e.REFUSED, " old controller", r"[Rr]eceived .* old controller.*"),
    _form(
        e.STOPPED,
        "andling stop replica ",
        rf"[Hh]andling stop replica \(.*?\) for partition {_NAME}.*",
    ),
)
NAMING = _form(e.OTHER, "artition ", rf".*?[Pp]artition {_NAME}(?: .*|[.,:)]?)")
"""Any other line that names a partition."""
PLAIN = _form(e.OTHER, "", r".*")
