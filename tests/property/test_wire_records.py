"""Batches come back as built, and the two ways to check records agree on everything."""

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.model.errors import InvalidRecordError, OttlaError
from ottla.wire import compression, record_check, records
from ottla.wire.records import Record
from support.batches import validate_batch

NAME = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
BLOB = st.none() | st.binary(max_size=70)
RECORD = st.builds(
    Record,
    offset=st.just(-1),
    timestamp=st.integers(0, 1 << 45),
    key=BLOB,
    value=BLOB,
    headers=st.lists(st.tuples(NAME, BLOB), max_size=2).map(tuple),
)


def alike(shape):
    """Draw records that differ in their timestamps only; drawn as such, which takes little time."""
    count, size, close = shape
    stamps = st.integers(1000, 1000 + (60 if close else 4000))
    return st.lists(stamps, min_size=count, max_size=count).map(
        lambda drawn: [Record(timestamp=stamp, value=bytes(size)) for stamp in drawn]
    )


ALIKE = st.tuples(st.integers(1, 200), st.integers(0, 12), st.booleans()).flatmap(alike)
FIXED = settings(database=None, derandomize=True)


class PlainWalk(record_check._Runs):
    """The walk that never takes the columnar way."""

    def _run_like_last(self):
        return False


def verdict(walk_class, payload, count):
    """Return the facts, or that the records are malformed."""
    kept = record_check._Runs
    record_check._Runs = walk_class
    try:
        return record_check.check_records(payload, count)
    except InvalidRecordError:
        return "malformed"
    finally:
        record_check._Runs = kept


@FIXED
@given(
    st.lists(RECORD, min_size=1, max_size=12),
    st.sampled_from(range(5)),
    st.integers(0, 1 << 62),
    st.booleans(),
)
def test_a_batch_comes_back_as_built(many, codec, base_offset, is_transactional):
    raw = records.build_batch(
        many, base_offset=base_offset, codec=codec, is_transactional=is_transactional
    )
    header = records.parse_batch_header(raw)
    assert records.crc_ok(raw, 0, header)
    found = list(records.iter_records(raw))
    assert [record._replace(offset=-1) for record in found] == many
    assert [record.offset for record in found] == [base_offset + i for i in range(len(many))]
    facts = validate_batch(raw, 0, header)
    stamps = [record.timestamp - many[0].timestamp for record in many]
    assert facts == (min(stamps), max(stamps), any(record.key is None for record in many))


@FIXED
@given(ALIKE | st.lists(RECORD, min_size=1, max_size=40))
def test_both_walks_learn_the_same(many):
    payload = records.build_batch(many)[61:]
    facts = verdict(record_check._Runs, payload, len(many))
    assert facts == verdict(PlainWalk, payload, len(many))
    assert facts != "malformed"


@FIXED
@given(ALIKE, st.data())
def test_both_walks_refuse_the_same(many, data):
    payload = bytearray(records.build_batch(many)[61:])
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    expected = verdict(PlainWalk, bytes(payload), len(many))
    assert verdict(record_check._Runs, bytes(payload), len(many)) == expected


@FIXED
@given(st.sampled_from([1, 2, 3, 4]), st.binary(max_size=3000), st.integers(1, 40))
def test_codecs_give_back_what_they_got(codec, data, times):
    whole = data * times
    packed = compression.compress(codec, whole)
    assert bytes(compression.decompress(codec, packed, len(whole))) == whole


@FIXED
@given(st.sampled_from([1, 2, 3, 4]), st.binary(max_size=300), st.data())
def test_broken_compressed_data_is_an_error_of_ours_and_never_above_the_cap(codec, data, more):
    packed = bytearray(compression.compress(codec, data))
    packed[more.draw(st.integers(0, len(packed) - 1))] = more.draw(st.integers(0, 255))
    with suppress(OttlaError):
        assert len(compression.decompress(codec, packed, 1000)) <= 1000
