"""Fixtures for tests with real processes: clusters of ours."""

import pytest


@pytest.fixture(scope="module")
def one_broker(tmp_path_factory):
    """Start one broker on a ZooKeeper of its own; it is gone when the module's tests are done."""
    from support.cluster import OttlaCluster

    folder = tmp_path_factory.mktemp("one")
    with OttlaCluster(folder, brokers=1) as cluster:
        yield cluster


COORDINATOR = {
    "offsets_topic_replication_factor": "1",
    "offsets_topic_num_partitions": "3",
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "transaction_state_log_num_partitions": "3",
    "group_initial_rebalance_delay_ms": "0",
}


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory):
    """Start one broker that coordinates groups and transactions by itself, without delays."""
    from support.cluster import OttlaCluster

    with OttlaCluster(tmp_path_factory.mktemp("one"), brokers=1, **COORDINATOR) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def with_acls(tmp_path_factory):
    """Start the same with an authorizer; everyone may do everything all the same."""
    from support.cluster import OttlaCluster
    from support.guarded import ACCESS

    settings = {**COORDINATOR, **ACCESS, "super_users": "User:ANONYMOUS"}
    with OttlaCluster(tmp_path_factory.mktemp("acls"), brokers=1, **settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Start three brokers that coordinate groups and transactions, with short waits."""
    from support.cluster import OttlaCluster

    settings = {
        "offsets_topic_num_partitions": "4",
        "transaction_state_log_num_partitions": "4",
        "group_initial_rebalance_delay_ms": "0",
        # A follower that waits for the processor holds a commit up: one that times out is shown
        # to no member, who begins anew, though it stands in the log a moment later.
        "offsets_commit_timeout_ms": "30000",
        "transaction_abort_timed_out_transaction_cleanup_interval_ms": "500",
    }
    folder = tmp_path_factory.mktemp("three")
    # Deaths are noticed sooner; who lives is to keep its session, and its groups, on busy cores.
    with OttlaCluster(folder, brokers=3, session_timeout_ms=10_000, **settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(three):
    """Return an admin client of the three brokers."""
    from support.clients import admin_client

    return admin_client(three.bootstrap)


@pytest.fixture(scope="module")
def kafka_tools():
    """Kafka's own tools, or a skip that says what is missing."""
    from support import kafka_tools

    reason = kafka_tools.why_not()
    if reason is not None:
        pytest.skip(reason)
    return kafka_tools
