"""Tables at a terminal of 80 columns."""

import io

import pytest

from ottla.cli import tables

HEADS = ("topic", "partitions", "replicas", "under-replicated", "leaderless", "bytes",
         "bytes of replicas")  # fmt: skip
ROWS = [("__transaction_state", 50, 3, 0, 0, 735, 2205), ("orders-of-today", 3, 3, 0, 0, 461, 1383)]


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(heads, rows, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    out = _Terminal()
    tables.write(heads, rows, out)
    return out.getvalue().splitlines()


def test_a_wide_table_keeps_its_rows_and_cuts_no_name(monkeypatch):
    wide = shown(HEADS, ROWS, 200, monkeypatch)
    assert len(wide) == 3
    assert wide[0].split("  ")[-1] == "bytes of replicas"
    assert wide[1].split() == list(map(str, ROWS[0]))
    narrow = shown(HEADS, ROWS, 80, monkeypatch)
    assert max(map(len, narrow)) <= 80
    assert narrow == [
        "topic               partitions replicas       under- leaderless bytes   bytes of",
        "                                          replicated                    replicas",
        "__transaction_state         50        3            0          0   735       2205",
        "orders-of-today              3        3            0          0   461       1383",
    ]


@pytest.mark.parametrize("width", [40, 60, 70])
def test_what_is_too_wide_is_printed_in_blocks(width, monkeypatch):
    lines = shown(HEADS, ROWS, width, monkeypatch)
    assert lines[:2] == ["topic: __transaction_state", "partitions: 50"]
    assert "topic: orders-of-today" in lines


def test_what_is_not_known_stands_among_numbers_as_a_number(monkeypatch):
    rows = [(1, None, None), (20, 300, None)]
    assert shown(("broker", "pid", "note"), rows, 80, monkeypatch) == [
        "broker  pid  note",
        "     1    -  -",
        "    20  300  -",
    ]
