"""Plans of reassignment: what is refused and how it is told (F42), and what is proposed."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.ids import TopicPartition
from ottla.placement import plans
from ottla.placement.plans import PlanError


def entry(topic="t", partition=0, replicas=(1, 2), **more):
    return {"topic": topic, "partition": partition, "replicas": list(replicas), **more}


def plan(*entries, **more):
    return json.dumps({"version": 1, "partitions": list(entries), **more}).encode()


def test_kafkas_format_is_read_and_written():
    data = plan(entry(partition=1, replicas=(3, 1)), entry(log_dirs=["any", "any"]))
    parsed = plans.parse_plan(data, "plan.json")
    assert parsed == {TopicPartition("t", 1): (3, 1), TopicPartition("t", 0): (1, 2)}
    written = plans.format_plan(parsed)
    assert plans.parse_plan(written.encode(), "again") == parsed
    assert json.loads(written)["partitions"][0] == entry(log_dirs=["any", "any"])
    unversioned = b'{"partitions":[{"topic":"t","partition":0,"replicas":[1]}]}'
    assert plans.parse_plan(unversioned, "old") == {TopicPartition("t", 0): (1,)}


def test_log_dirs_are_read():
    data = plan(entry(log_dirs=["any", "/data/2"]), entry(partition=1, replicas=(3,)))
    assert plans.parse_plan(data, "plan.json")[TopicPartition("t", 0)] == (1, 2)
    assert plans.parse_places(data) == {(TopicPartition("t", 0), 2): "/data/2"}


BAD = {
    "partition twice": (plan(entry(), entry(replicas=(3,))), "t-0 is listed twice"),
    "replica twice": (plan(entry(replicas=(1, 2, 1))), "t-0 has broker 1 twice"),
    "negative replica": (plan(entry(replicas=(1, -2))), "broker -2"),
    "negative partition": (plan(entry(partition=-1)), "partition -1"),
    "no replicas": (plan(entry(replicas=())), "t-0 has no replicas"),
    "no partitions": (plan(), "no partition is listed"),
    "partitions missing": (b'{"version":1}', "`partitions`"),
    "illegal topic": (plan(entry(topic="a/../b")), "characters other than"),
    "empty topic": (plan(entry(topic="")), "empty string"),
    "topic too long": (plan(entry(topic="t" * 5000)), "max allowed length"),
    "NaN": (b'{"partitions":[{"topic":"t","partition":0,"replicas":[NaN]}]}', "malformed"),
    "replica as text": (plan(entry(replicas=("1",))), "partitions[0].replicas[0]"),
    "replica as fraction": (plan(entry(replicas=(1.5,))), "partitions[0].replicas[0]"),
    "replica too large": (plan(entry(replicas=(2**31,))), "replicas[0]"),
    "partition as text": (plan(entry(partition="0")), "partitions[0].partition"),
    "topic as number": (plan(entry(topic=7)), "partitions[0].topic"),
    "wrong version": (plan(entry(), version=2), "version 2"),
    "version as text": (plan(entry(), version="1"), "version"),
    "not an object": (b"[]", "expected `object`"),
    "null": (b"null", "expected `object`"),
    "not JSON": (b"topic t partition 0", "malformed"),
    "cut off": (plan(entry())[:-5], "truncated"),
    "more behind it": (plan(entry()) + b"{}", "trailing"),
    "empty": (b" \n", "empty"),
    "not UTF-8": (b'{"partitions":[{"topic":"\xff\xfe"}]}', "utf-8"),
    "nested deeply": (b'{"x":' + b"[" * 100_000, "nested too deeply"),
    "10 MB": (b" " * 10_000_000 + plan(entry()), "larger than 8 MiB"),
    "topics to move": (b'{"version":1,"topics":[{"topic":"t"}]}', "`partitions`"),
    "folders": (plan(entry(log_dirs=["any", "data/2"])), "'data/2'; write its whole path"),
    "too few folders": (plan(entry(log_dirs=["any"])), "2 replicas but 1 log_dirs"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_plan_is_one_line_with_place_and_reason(case):
    data, says = BAD[case]
    with pytest.raises(PlanError) as caught:
        plans.parse_plan(data, "plan.json")
    message = str(caught.value)
    assert message.startswith("plan.json: ")
    assert says in message
    assert "\n" not in message
    assert len(message) < 600


@given(
    st.one_of(
        st.binary(max_size=200),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["version", "partitions", "topic", "partition", "replicas"]),
                    inner,
                    max_size=5,
                )
            ),
            max_leaves=12,
        ).map(lambda value: json.dumps(value).encode()),
    )
)
def test_whatever_a_file_holds_it_is_a_plan_or_a_plan_error(data):
    parsed = {}
    with contextlib.suppress(PlanError):
        parsed = plans.parse_plan(data, "plan.json")
    assert all(len(set(r)) == len(r) > 0 and min(r) >= 0 for r in parsed.values())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("flights", "write TOPIC-PARTITION=BROKERS"),
        ("flights=1", "write TOPIC-PARTITION, as in flights-0"),
        ("-0=1", "write TOPIC-PARTITION"),
        ("flights-x=1", "write TOPIC-PARTITION"),
        ("flights--1=1", None),
        ("flights-99999999999=1", "not a valid partition number"),
        ("flights-0=", "'' is not a broker id"),
        ("flights-0=1,,2", "'' is not a broker id"),
        ("flights-0=1,-2", "'-2' is not a broker id"),
        ("flights-0=1,x", "'x' is not a broker id"),
        ("flights-0=99999999999", "not a broker id"),
        ("flights-٣=1", "write TOPIC-PARTITION"),
    ],
)
def test_a_move_typed_wrong(text, says):
    if says is None:
        assert plans.parse_move(text) == (TopicPartition("flights-", 1), (1,))
        return
    with pytest.raises(ValueError, match=r"write|no") as caught:
        plans.parse_move(text)
    assert says in str(caught.value)


def test_a_move_typed_right():
    assert plans.parse_move("my-topic-12= 1, 2 ,3") == (TopicPartition("my-topic", 12), (1, 2, 3))


CURRENT = {TopicPartition("t", 0): (1, 2), TopicPartition("t", 1): (2, 9)}


@pytest.mark.parametrize(
    ("tp", "replicas", "says"),
    [
        (("x", 0), (1,), "topic x does not exist"),
        (("t", 2), (1,), "t-2 does not exist: topic t has partitions 0 to 1"),
        (("t", 0), (1, 7), "broker 7 is not alive; alive are 1,2,3"),
        (("t", 0), (3, 1), None),
        # A replica that is there already may be on a dead broker, as Kafka's controller has it.
        (("t", 1), (9, 3), None),
        (("t", 0), (9,), "broker 9 is not alive"),
    ],
)
def test_a_plan_and_the_cluster(tp, replicas, says):
    problem = plans.problem_in_cluster({TopicPartition(*tp): replicas}, CURRENT, [3, 1, 2])
    assert (problem is None) if says is None else (says in problem)


# --- throttles --------------------------------------------------------------------------------


def test_who_is_throttled():
    """As `calculateLeaderThrottles`, `calculateFollowerThrottles` and `…ReassigningBrokers`."""
    plan = {TopicPartition("t", 0): (3, 1), TopicPartition("u", 0): (4,)}
    current = {TopicPartition("t", 0): (1, 2), TopicPartition("u", 0): (1, 4, 5)}
    moving = {
        TopicPartition("t", 7): ((6,), (7, 8)),
        TopicPartition("u", 0): ((1,), (4, 5)),
    }
    found = plans.throttled(plan, current, moving)
    assert found.leaders == {"t": "0:1,0:2,7:6", "u": "0:1"}
    assert found.followers == {"t": "0:3,7:7,7:8", "u": "0:4"}
    assert found.brokers == [1, 2, 3, 4, 6, 7, 8]
