"""The metadata cache: partial updates, deletions, ids, immutable snapshots."""

from ottla.broker.metadata.metadata_cache import Change, MetadataCache
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.wire.messages.control import UpdateMetadataRequest as Update

ID_A = b"a" * 16
ID_B = b"b" * 16


def broker(number, *, listener="PLAINTEXT", rack=None):
    endpoint = Update.UpdateMetadataEndpoint(
        host=f"host-{number}", port=9000 + number, listener=listener, security_protocol=0
    )
    return Update.UpdateMetadataBroker(id=number, endpoints=[endpoint], rack=rack)


def partition(index, leader=1, epoch=0, replicas=(1, 2), isr=None, offline=()):
    return Update.UpdateMetadataPartitionState(
        partition_index=index,
        controller_epoch=1,
        leader=leader,
        leader_epoch=epoch,
        isr=list(replicas if isr is None else isr),
        zk_version=3,
        replicas=list(replicas),
        offline_replicas=list(offline),
    )


def topic(name, topic_id, *partitions):
    return Update.UpdateMetadataTopicState(
        topic_name=name, topic_id=topic_id, partition_states=list(partitions)
    )


def update(*topics, brokers=(1, 2), controller=1):
    return Update(
        controller_id=controller,
        controller_epoch=1,
        topic_states=list(topics),
        live_brokers=[broker(b) for b in brokers],
    )


def test_a_fresh_cache_knows_nothing():
    cache = MetadataCache()
    assert cache.controller_id == -1
    assert not cache.contains("a")
    assert cache.endpoint(1, "PLAINTEXT") is None


def test_an_update_brings_topics_ids_and_brokers():
    cache = MetadataCache()
    cache.apply(update(topic("a", ID_A, partition(1), partition(0, leader=2)), controller=2))
    assert cache.controller_id == 2
    assert list(cache.snapshot.topics["a"].partitions) == [0, 1]
    assert cache.partition("a", 0).leader == 2
    assert cache.partition("a", 0).partition_epoch == 3
    assert cache.topic_id("a") == ID_A
    assert cache.topic_name(ID_A) == "a"
    assert cache.endpoint(2, "PLAINTEXT").port == 9002
    assert cache.endpoint(2, "INTERNAL") is None


def test_a_partial_update_leaves_the_rest_and_the_old_snapshot_alone():
    cache = MetadataCache()
    cache.apply(
        update(topic("a", ID_A, partition(0), partition(1)), topic("b", ID_B, partition(0)))
    )
    before = cache.snapshot
    cache.apply(update(topic("a", ID_A, partition(1, leader=2, epoch=5)), brokers=(2,)))
    assert cache.partition("a", 0).leader == 1
    assert cache.partition("a", 1).leader_epoch == 5
    assert cache.snapshot.topics["b"] is before.topics["b"]
    assert list(cache.snapshot.brokers) == [2]
    assert before.topics["a"].partitions[1].leader_epoch == 0
    assert list(before.brokers) == [1, 2]


def test_deleting_the_last_partition_removes_the_topic_and_its_id():
    cache = MetadataCache()
    cache.apply(update(topic("a", ID_A, partition(0), partition(1))))
    change = cache.apply(update(topic("a", ID_A, partition(0, leader=-2))))
    assert change.deleted == (TopicPartition("a", 0),)
    assert cache.contains("a")
    cache.apply(update(topic("a", ID_A, partition(1, leader=-2))))
    assert not cache.contains("a")
    assert cache.topic_name(ID_A) is None


def test_a_topic_created_anew_gets_the_new_id():
    cache = MetadataCache()
    cache.apply(update(topic("a", ID_A, partition(0))))
    cache.apply(update(topic("a", ID_B, partition(0))))
    assert cache.topic_id("a") == ID_B
    assert cache.topic_name(ID_A) is None


def test_an_old_controller_sends_ungrouped_states_without_ids():
    cache = MetadataCache()
    state = partition(0)
    state.topic_name = "a"
    cache.apply(
        Update(controller_id=1, ungrouped_partition_states=[state], live_brokers=[broker(1)])
    )
    assert cache.topic_id("a") == ZERO_UUID
    assert cache.partition("a", 0).leader == 1


def test_leaders_are_known_only_when_every_partition_has_one():
    cache = MetadataCache()
    assert not cache.has_leaders("a", 1)
    cache.apply(update(topic("a", ID_A, partition(0), partition(1, leader=-1))))
    assert cache.has_leaders("a", 1)
    assert not cache.has_leaders("a", 2)
    cache.apply(update(topic("a", ID_A, partition(1, leader=2))))
    assert cache.has_leaders("a", 2)


def test_listeners_hear_what_changed():
    cache = MetadataCache()
    heard: list[Change] = []
    cache.on_change(heard.append)
    cache.apply(update(topic("a", ID_A, partition(0))))
    cache.apply(update(topic("b", ID_B, partition(0))))
    cache.apply(update(brokers=(1,)))
    assert [(c.topics, c.brokers_changed) for c in heard] == [
        (("a",), True),
        (("b",), False),
        ((), True),
    ]


def test_another_topic_of_the_same_name_has_nothing_of_the_old_one():
    cache = MetadataCache()
    cache.apply(update(topic("a", ID_A, partition(0), partition(1))))
    cache.apply(update(topic("a", ID_B, partition(0))))
    assert list(cache.snapshot.topics["a"].partitions) == [0]
    assert cache.topic_name(ID_A) is None


def test_topics_that_were_deleted_unseen_are_forgotten():
    cache = MetadataCache()
    cache.apply(update(topic("a", ID_A, partition(0)), topic("b", ID_B, partition(0))))
    heard = []
    cache.on_change(heard.append)
    cache.forget(["a", "never heard of"])
    assert list(cache.snapshot.topics) == ["b"]
    assert cache.topic_name(ID_A) is None
    assert heard == [Change(("a",), (TopicPartition("a", 0),), False)]
    cache.forget(["a"])
    assert len(heard) == 1
