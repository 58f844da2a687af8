"""Stamps and reports, and which findings of an audit count."""

import json
import re

import pytest

from ottla.pipelines.auditing.judging import DOUBLED, LOST, Finding, kept
from ottla.pipelines.auditing.stamps import BUCKET_MS, HEADER, PATTERN, Stamps


def test_stamps_count_by_bucket_and_a_report_says_what_is_open():
    stamps = Stamps("web-1", "orders")
    first = [stamps.next(at, b"k", b"value") for at in (0, BUCKET_MS - 1, BUCKET_MS)]
    texts = [value.decode() for _, value in first]
    assert [name for name, _ in first] == [HEADER] * 3
    assert [re.match(PATTERN, text).groups() for text in texts] == [
        (stamps.producer, "0", "0"),
        (stamps.producer, str(BUCKET_MS - 1), "1"),
        (stamps.producer, str(BUCKET_MS), "0"),
    ]
    stamps.acknowledged(first[1])
    stamps.acknowledged(first[1])
    assert [json.loads(line) for line in stamps.report()] == [
        {"topic": "orders", "producer": stamps.producer, "bucket_ms": 0, "count": 2, "bytes": 12,
         "unacknowledged": [0]},
        {"topic": "orders", "producer": stamps.producer, "bucket_ms": BUCKET_MS, "count": 1,
         "bytes": 6, "unacknowledged": [0]},
    ]  # fmt: skip
    assert Stamps("web-1", "orders").producer != stamps.producer


def test_a_producers_name_fits_into_a_header():
    for name in ("", "a;b", "a" * 161, "ü"):
        with pytest.raises(ValueError, match="is no producer's name"):
            Stamps(name, "orders")


def test_losses_count_only_where_all_is_still_there():
    def finding(kind, bucket):
        return Finding(kind, "t", bucket, 1, "")

    found = [finding(kind, bucket) for kind in (LOST, DOUBLED) for bucket in (1, 2, 3, 4)]
    assert kept(found, None, None, {})[0] == sorted(found, key=lambda f: (f.bucket_ms, f.kind))
    wrong, unjudged = kept(found, 2, 4, {"t": 2})
    assert [(f.kind, f.bucket_ms) for f in wrong] == [(DOUBLED, 2), (DOUBLED, 3), (LOST, 3)]
    assert unjudged == 1
    assert kept(found, None, None, {"t": None})[1] == 4
