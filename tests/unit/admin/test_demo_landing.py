"""The demo's tables: a micro-batch that is done again is there once, and DuckDB's count tells."""

import datetime as dt

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("duckdb")
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from ottla.admin.demo import flights_job, verifying


class Rows:
    """What the program asks of a DataFrame."""

    def __init__(self, **columns):
        self.columns = columns

    def toArrow(self):  # noqa: N802 - PySpark's name
        return pa.table(self.columns)


def flights(first, count):
    return Rows(n=range(first, first + count), carrier=["UA"] * count)


def hours(flown, departed, late):
    begins = [dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)]
    return Rows(
        hour_begins=begins, carrier=["UA"], airline=["United"], flights=[flown],
        departure_delay=[10.0 * departed], arrival_delay=[5.0 * departed], departed=[departed],
        arrived=[departed], late=[late],
    )  # fmt: skip


@pytest.fixture
def lake(tmp_path):
    for number, first in enumerate((0, 100)):
        assert flights_job.append(tmp_path / "hourly", hours(100, 90, 25), number) == number + 1
        rows = flights_job.append(tmp_path / "flights", flights(first, 100), number)
        assert rows == 100 * (number + 1)
    return tmp_path


def test_what_a_killed_driver_does_again_is_not_appended_again(lake):
    """The driver died between the commits of both tables, or after them."""
    for number in (0, 1):
        assert flights_job.append(lake / "flights", flights(100 * number, 100), number) == 200
        assert flights_job.append(lake / "hourly", hours(100, 90, 25), number) == 2
    assert DeltaTable(lake / "flights").version() == 1
    assert flights_job.append(lake / "flights", flights(200, 50), 2) == 250


def test_duckdb_counts_rows_flights_and_hours(lake):
    found = verifying.count_landed(lake)
    assert (found.rows, found.distinct, found.in_hours) == (200, 200, 200)
    assert found.delays == [("United", 200, 10.0, 5.0, 25.0, 20)]
    write_deltalake(lake / "flights", flights(0, 1).toArrow(), mode="append")
    found = verifying.count_landed(lake)
    assert (found.rows, found.distinct) == (201, 200)
