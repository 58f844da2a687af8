"""A Spark session for the tests of jobs."""

import pytest


@pytest.fixture(scope="module")
def spark():
    """Start a session of two cores, with the connector whether the tests of a file need it or not.

    A JVM keeps the class path of its first session, and one process may run several files.
    """
    from ottla.pipelines.session import Work, start_session
    from support.spark_connector import with_connector

    work = Work(quick_java=True)  # few rows each
    session = start_session("tests", with_connector("local[2]"), work=work)
    yield session
    session.stop()
