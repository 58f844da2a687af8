"""A command line is one process for users; here many share one."""

import pytest

from ottla.admin import connection


@pytest.fixture(autouse=True)
def nothing_typed_before():
    connection.options(None, None)
