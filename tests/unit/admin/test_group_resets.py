"""What a reset is asked for in words and files, and what of it is refused."""

import pytest

from ottla.admin.operations.input_files import MAX_FILE_BYTES, parse_offsets
from ottla.admin.operations.typed_values import parse_duration
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("P1DT2H", 93_600_000),
        ("PT1.5S", 1_500),
        ("p2d", 172_800_000),
        ("1d2h", 93_600_000),
        ("90m", 5_400_000),
        ("0s", 0),
    ],
)
def test_durations(text, ms):
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1M", "P1DT", "1w", "2h1d", "-1h", "5", "1.5h", "٣h"]
)
def test_what_is_no_duration(text):
    """`P1M` is a month, which has no length."""
    with pytest.raises(ValueError, match="write it as"):
        parse_duration(text)


def test_files_of_one_group_and_of_many():
    wanted = {TopicPartition("t", 0): 5, TopicPartition("a,b", 11): 0}
    assert parse_offsets(b't,0,5\n"a,b",11,0\n', "f", "g") == wanted
    assert parse_offsets(b'g,t,0,5\ng,"a,b",11,0', "f", "g") == wanted


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no offsets"),
        (b"t,0,5\n\n", "line 2"),
        (b"t,0", "line 1: write topic,partition,offset"),
        (b"t,x,5", "line 1: write"),
        (b"t,0,-1", "line 1: -1 is not an offset"),
        (b"t,0,9223372036854775808", "line 1: 9223372036854775808 is not an offset"),
        (b"t,0,", "line 1: nothing is not an offset"),
        (b"t,0,5\nt,0,6", "line 2: t-0 is named twice"),
        (b"other,t,0,5", "line 1: this is of group other, not g"),
        (b"\xff,0,5", "utf-8"),
        ("t,٣,5".encode(), "line 1: write"),
        (b" " * (MAX_FILE_BYTES + 1), "a list of offsets has at most"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(data, words):
    with pytest.raises(OttlaError, match=r"^plan\.csv") as refusal:
        parse_offsets(data, "plan.csv", "g")
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)
