"""At rest all agree; and each thing that could differ is found when it does."""

import pytest
from msgspec.structs import replace

from ottla.controller.states import PartitionReplica, PartitionState, ReplicaState
from ottla.model.cluster import ReplicaAssignment
from ottla.model.ids import TopicPartition
from ottla.sim.cluster import Cluster
from ottla.sim.plans import Plan
from ottla.zookeeper import znodes
from ottla.zookeeper.memory_tree import Znode

TP = TopicPartition("events", 0)


@pytest.fixture
def cluster():
    quiet = {"producers": 0, "no_retry_producers": 0, "consumers": 0, "operators": False}
    found = Cluster(Plan(1, partitions=2, faults=(), **quiet))
    found.boot()
    found.client_node().boot(found.serve_clients)
    found.simulation.run_for(5.0)
    yield found
    found.close()


def context(cluster):
    (active,) = [b for b in cluster.brokers.values() if b.services.controller.is_active]
    return active.services.controller.context


def follower(cluster):
    leader = context(cluster).leader(TP)
    return next(b for b in cluster.brokers.values() if b.broker_id != leader)


def leader(cluster):
    return cluster.brokers[f"b{context(cluster).leader(TP)}"]


def znode(cluster, path):
    return cluster.zookeeper.tree.nodes[path]


def new_state(cluster):
    """Write a state behind the controller's back."""
    node = znode(cluster, znodes.state_path(TP))
    state = znodes.decode_state(TP, node.data, node.version)
    fewer = replace(state.leader_and_isr, isr=state.leader_and_isr.isr[:-1])
    node.data, node.version = znodes.encode_state(fewer, state.controller_epoch), node.version + 1


def new_topic(cluster):
    node = znode(cluster, "/brokers/topics/events")
    info = znodes.decode_topic("events", node.data)
    moving = ReplicaAssignment((0, 1, 2), adding=(2,))
    node.data = znodes.encode_topic(replace(info, assignment={**info.assignment, 0: moving}))


def another_id(cluster):
    node = znode(cluster, "/brokers/topics/events")
    info = znodes.decode_topic("events", node.data)
    node.data = znodes.encode_topic(replace(info, topic_id=b"x" * 16))


def request(cluster):
    node = znode(cluster, "/brokers/topics/events")
    cluster.zookeeper.tree.nodes["/admin/reassign_partitions"] = node


def deletion(cluster):
    nodes = cluster.zookeeper.tree.nodes
    nodes.setdefault("/admin/delete_topics", Znode(b"", 0, 1, 1, b"")).children["events"] = None


def lose_a_broker_epoch(cluster):
    known = context(cluster)
    known.set_brokers([replace(b, epoch=b.epoch + 1) for b in known.brokers.values()])


def know_a_ghost(cluster):
    known = context(cluster)
    known.leadership[TopicPartition("ghost", 0)] = known.leadership[TP]


def cached(cluster, **changes):
    cache = follower(cluster).services.metadata
    topic = cache.snapshot.topics["events"]
    state = topic.partitions[0]
    fields = {f: getattr(state, f) for f in state.__struct_fields__} | changes
    partitions = {**topic.partitions, 0: type(state)(**fields)}
    topics = {"events": replace(topic, partitions=partitions)}
    cache.snapshot = replace(cache.snapshot, topics=topics)


def set_state(cluster, machine, subject, state):
    getattr(context(cluster), machine).begin(subject, state)


def partition(broker):
    return broker.services.replicas.partitions[TP]


def folder(cluster, place):
    broker = follower(cluster)
    cluster.simulation.node(f"b{broker.broker_id}").disk.folders.add(place)


def other_dir(cluster):
    now = partition(follower(cluster)).log.parent_dir
    return next(d for d in cluster.processes.log_dirs if d != now)


STRAY = TopicPartition("events", 7)


def keep_a_stray(cluster):
    """Have a follower keep logs of a partition that went elsewhere amid its move between dirs."""
    logs = follower(cluster).services.replicas.logs
    logs.prefer(STRAY, cluster.processes.log_dirs[0])
    logs.get_or_create(STRAY, is_new=True)
    return logs.create_future(STRAY, cluster.processes.log_dirs[1])


def keep_only_its_future_log(cluster):
    keep_a_stray(cluster)
    logs = follower(cluster).services.replicas.logs
    logs.retire(logs._logs.pop(STRAY))


def keep_another_future_log(cluster):
    keep_a_stray(cluster)
    folder(cluster, f"{cluster.processes.log_dirs[1]}/{STRAY}.1f-future")


def go_on_with_a_move_of_a_stray(cluster):
    keep_a_stray(cluster)
    follower(cluster).services.replicas.moves._moves[STRAY] = None


DIFFERENCES = [
    (new_state, "leadership"),
    (new_state, "has ISR"),
    (new_topic, "still being reassigned"),
    (new_topic, "assignment"),
    (another_id, "id"),
    (request, "/admin/reassign_partitions is still there"),
    (deletion, "/admin/delete_topics/events is still there"),
    (lose_a_broker_epoch, "live brokers and their epochs"),
    (know_a_ghost, "ghost-0"),
    (lambda c: context(c).deleting.update(events=None), "topics being deleted"),
    (lambda c: context(c).reassigning.update({TP: None}), "partitions being reassigned"),
    (lambda c: context(c).shutting_down.add(1), "shutting down"),
    (lambda c: setattr(context(c), "epoch", 9), "controller epoch"),
    (lambda c: setattr(context(c), "epoch_zk_version", 9), "version of the epoch"),
    (
        lambda c: set_state(c, "partition_states", TP, PartitionState.OFFLINE),
        "events-0 state PartitionState.OFFLINE",
    ),
    (
        lambda c: set_state(c, "replica_states", PartitionReplica(TP, 1), ReplicaState.NEW),
        "events-0 on 1 state ReplicaState.NEW",
    ),
    (lambda c: cached(c, leader_epoch=7), "metadata cache: events-0"),
    (lambda c: cached(c, isr=(0,)), "metadata cache: events-0"),
    (lambda c: cached(c, offline_replicas=(0,)), "metadata cache: events-0"),
    (lambda c: cached(c, partition_epoch=9), "metadata cache: events-0"),
    (lambda c: follower(c).services.metadata.forget(["events"]), "metadata cache: topics"),
    (lambda c: setattr(partition(follower(c)).state, "leader_epoch", 7), "events-0 role"),
    (lambda c: setattr(partition(follower(c)).state, "is_leader", True), "events-0 role"),
    (lambda c: setattr(partition(leader(c)).state, "partition_epoch", 7), "events-0 ISR"),
    (lambda c: setattr(partition(leader(c)).state, "topic_id", b"y" * 16), "events-0 topic id"),
    (lambda c: follower(c).services.replicas.partitions.pop(TP), "replicas: partitions"),
    (lambda c: follower(c).services.replicas.offline.update({TP: None}), "offline partitions"),
    (lambda c: folder(c, other_dir(c) + "/events-0"), "log dirs: events-0 folders"),
    (lambda c: folder(c, other_dir(c) + "/events-0.1f-future"), "should have taken a log's place"),
    (keep_only_its_future_log, "should have taken a log's place"),
    (keep_another_future_log, "should have taken a log's place"),
    (go_on_with_a_move_of_a_stray, "log dirs: moves under way 1"),
    (
        lambda c: setattr(partition(follower(c)), "future", partition(leader(c)).log),
        "events-0 is still on its way to",
    ),
    (lambda c: c.zookeeper.tree.nodes.pop("/controller"), "active controllers"),
    (lambda c: c.simulation.node("b1").crash(), "b1 not up"),
]


def test_at_rest_all_agree(cluster):
    assert cluster.disagreements() == []


def test_logs_of_a_partition_that_went_elsewhere_amid_a_move_may_stay(cluster):
    """R14, R15; seed 9300081: the broker was down meanwhile, nobody told it to delete them."""
    future = keep_a_stray(cluster)
    assert future.dir in cluster.simulation.node(f"b{follower(cluster).broker_id}").disk.folders
    assert cluster.disagreements() == []


@pytest.mark.parametrize(("harm", "word"), DIFFERENCES)
def test_each_difference_is_found(cluster, harm, word):
    harm(cluster)
    assert any(word in line for line in cluster.disagreements())
