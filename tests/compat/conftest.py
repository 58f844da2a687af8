"""Fixtures for tests with real processes: a cluster of ours on a real ZooKeeper."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))


@pytest.fixture(scope="module")
def one_broker(tmp_path_factory):
    """Start one broker on a ZooKeeper of its own; it is gone when the module's tests are done."""
    from cluster import OttlaCluster

    folder = tmp_path_factory.mktemp("one")
    with OttlaCluster(folder, brokers=1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka_tools():
    """Kafka's own tools, or a skip that says what is missing."""
    import kafka_tools

    reason = kafka_tools.why_not()
    if reason is not None:
        pytest.skip(reason)
    return kafka_tools
