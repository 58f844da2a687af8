"""The checker: it finds what is planted, and nothing in what a correct cluster does."""

import pytest

from ottla.testing.checking import Acknowledged, Found, check


def written(count, keys=3):
    """Return acknowledged records in order, and the same as a reader finds them."""
    acknowledged, found = [], []
    for n in range(count):
        key, value = b"k%d" % (n % keys), b"v%d" % n
        partition, offset = n % 2, n // 2
        acknowledged.append(Acknowledged("orders", key, value, partition, offset))
        found.append(Found("orders", partition, offset, key, value))
    return acknowledged, found


def nowhere(acknowledged):
    """Return the same, from an application that does not know where its records are."""
    return [Acknowledged(a.topic, a.key, a.value) for a in acknowledged]


@pytest.fixture(params=["known places", "unknown places"])
def pair(request):
    acknowledged, found = written(40, keys=4)
    return (nowhere(acknowledged) if request.param == "unknown places" else acknowledged), found


def test_all_is_right(pair):
    result = check(*pair)
    assert result.right
    assert str(result) == "40 records acknowledged, 40 found"


def test_a_lost_record_is_found(pair):
    acknowledged, found = pair
    gone = found.pop(17)
    result = check(acknowledged, found)
    assert len(result.lost) == 1
    assert repr(gone.value) in result.lost[0]
    assert not result.doubled
    assert not result.reordered


def test_another_record_in_its_place_is_a_loss():
    acknowledged, found = written(10)
    found[4] = Found("orders", found[4].partition, found[4].offset, b"k", b"other")
    (lost,) = check(acknowledged, found).lost
    assert "there is key=b'k' value=b'other'" in lost


def test_a_doubled_record_is_found(pair):
    acknowledged, found = pair
    one = found[5]
    found.append(Found("orders", one.partition, 1000, one.key, one.value))
    result = check(acknowledged, found)
    assert len(result.doubled) == 1
    assert "is there 2 times, acknowledged 1: orders-1@2, orders-1@1000" in result.doubled[0]
    assert not result.lost


def test_what_failed_may_be_there_once_but_not_twice():
    acknowledged, found = written(4)
    extra = [Found("orders", 0, 100 + n, b"k", b"failed") for n in range(2)]
    assert check(acknowledged, [*found, extra[0]]).right
    assert check(acknowledged, [*found, *extra]).doubled


def test_equal_records_are_told_apart_by_their_number():
    one = Acknowledged("orders", b"k", b"same")
    found = [Found("orders", 0, n, b"k", b"same") for n in range(3)]
    assert check([one] * 3, found).right
    assert check([one] * 3, found[:2]).lost
    assert check([one] * 2, found).doubled


def test_exchanged_records_of_a_key_are_found(pair):
    acknowledged, found = pair
    first, second = found[0], found[4]  # of one key and partition
    assert (first.key, first.partition) == (second.key, second.partition)
    found[0] = Found("orders", first.partition, first.offset, second.key, second.value)
    found[4] = Found("orders", second.partition, second.offset, first.key, first.value)
    result = check(acknowledged, found)
    assert not result.right
    # Who knows the places has lost two; who does not sees them in another order.
    assert len(result.lost) == (2 if acknowledged[0].offset >= 0 else 0)
    assert bool(result.reordered) == (acknowledged[0].offset < 0)


def test_acknowledgements_in_another_order_than_the_log_are_found():
    acknowledged, found = written(40, keys=4)
    acknowledged[0], acknowledged[4] = acknowledged[4], acknowledged[0]
    result = check(acknowledged, found)
    assert len(result.reordered) == 1
    assert "was acknowledged after" in result.reordered[0]
    assert not result.lost


def test_the_order_of_different_keys_does_not_matter(pair):
    acknowledged, found = pair
    acknowledged[0], acknowledged[1] = acknowledged[1], acknowledged[0]
    assert check(acknowledged, found).right


def test_a_long_list_is_cut():
    acknowledged, _ = written(40)
    text = str(check(acknowledged, []))
    assert "lost: 40" in text
    assert "and 35 more" in text
