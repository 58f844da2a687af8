"""Topics created by metadata requests: only as the settings and the request allow."""

import pytest

from ottla.model.errors import ErrorCode
from ottla.wire.messages.cluster import MetadataRequest
from ottla.wire.messages.topics import CreateTopicsRequest

pytestmark = pytest.mark.timeout(60)

ALL_VERSIONS = range(13)
WITH_A_CHOICE = range(4, 13)
"""Before version 4 a request could not say that it wants nothing created."""


def ask(scene, names, version, *, allow=True):
    topics = None
    if names is not None:
        topics = [MetadataRequest.MetadataRequestTopic(name=n) for n in names]
    request = MetadataRequest(topics=topics)
    if version >= 4:
        request.allow_auto_topic_creation = allow
    return {t.name: t.error_code for t in scene.ask(1, request, version).topics}


def exists(scene, name):
    return scene.znode(f"/brokers/topics/{name}") is not None


def test_topics_are_created_where_settings_and_request_allow_it(scene):
    broker = scene.up(1, num_partitions="2")
    for version in ALL_VERSIONS:
        name = f"t{version}"
        assert ask(scene, [name], version) == {name: ErrorCode.LEADER_NOT_AVAILABLE}, version
        assert exists(scene, name)
        known = broker.services.metadata
        scene.wait(lambda known=known, name=name: known.has_leaders(name, 2))
        assert ask(scene, [name], version) == {name: ErrorCode.NONE}


def test_nothing_is_created_where_the_request_forbids_it(scene):
    scene.up(1)
    for version in WITH_A_CHOICE:
        found = ask(scene, ["t"], version, allow=False)
        assert found == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, version
    assert not exists(scene, "t")


def test_nothing_is_created_where_the_settings_forbid_it(scene):
    scene.up(1, auto_create_topics_enable="false")
    for version in ALL_VERSIONS:
        found = ask(scene, ["t", "__consumer_offsets", "a b"], version)
        assert found == {
            "t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "__consumer_offsets": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }, version
    assert not exists(scene, "t")
    assert not exists(scene, "__consumer_offsets")


@pytest.mark.parametrize("name", ["a b", "ä", "..", "x" * 250])
def test_a_name_that_no_topic_may_have(scene, name):
    scene.up(1)
    for version in ALL_VERSIONS:
        assert ask(scene, [name], version) == {name: ErrorCode.INVALID_TOPIC_EXCEPTION}, version
    assert not exists(scene, name)


def test_asking_for_all_creates_none(scene):
    scene.up(1)
    assert ask(scene, [], 0) == {}
    for version in range(1, 13):
        assert ask(scene, None, version) == {}, version


def test_too_few_brokers_for_the_default(scene):
    scene.up(1, default_replication_factor="2")
    for version in ALL_VERSIONS:
        found = ask(scene, ["t", "u"], version)
        factor = ErrorCode.INVALID_REPLICATION_FACTOR
        assert found == {"t": factor, "u": factor}, version
    assert not exists(scene, "t")
    scene.up(2)
    scene.wait(lambda: len(scene.brokers["b1"].services.metadata.snapshot.brokers) == 2)
    assert ask(scene, ["t"], 12) == {"t": ErrorCode.LEADER_NOT_AVAILABLE}


def test_internal_topics_are_what_the_settings_say(scene):
    broker = scene.up(
        1,
        offsets_topic_num_partitions="3",
        offsets_topic_replication_factor="1",
        transaction_state_log_num_partitions="2",
        transaction_state_log_replication_factor="1",
    )
    names = ["__consumer_offsets", "__transaction_state"]
    assert ask(scene, names, 9) == dict.fromkeys(names, ErrorCode.LEADER_NOT_AVAILABLE)
    known = broker.services.metadata
    scene.wait(lambda: known.has_leaders(names[0], 3) and known.has_leaders(names[1], 2))
    for name in names:
        assert b'"cleanup.policy":"compact"' in scene.znode(f"/config/topics/{name}").data


def test_a_topic_that_differs_by_a_dot_only_is_not_created(scene):
    scene.up(1)
    r = CreateTopicsRequest
    topic = r.CreatableTopic(name="a_b", num_partitions=1, replication_factor=1)
    assert scene.ask(1, r(topics=[topic], timeout_ms=9000), 7).topics[0].error_code == 0
    assert ask(scene, ["a.b"], 12) == {"a.b": ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert not exists(scene, "a.b")
