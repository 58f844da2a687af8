"""What stories cannot tell by commands: races, lost replies, garbage, and the end of a term."""

import asyncio
import json

import pytest
from story_harness import play
from story_script import partition

from ottla.controller import channels
from ottla.controller.batch import LEADER_AND_ISR
from ottla.controller.elections import ElectionKind
from ottla.controller.events import FullResyncDue, LeaderBalanceDue
from ottla.controller.states import PartitionReplica, ReplicaState
from ottla.model.cluster import LeaderAndIsr, ReplicaAssignment, TopicInfo
from ottla.model.errors import ErrorCode, NotControllerError
from ottla.wire.messages.control import AlterPartitionRequest, ControlledShutdownRequest
from ottla.zookeeper import jute, znodes
from ottla.zookeeper.access import Access
from ottla.zookeeper.operations import Create, Delete, Set
from ottla.zookeeper.states import PartitionStates
from ottla.zookeeper.watches import WatchEvent, WatchType

T0 = partition("t-0")


def known(cluster, tp=T0):
    return cluster.active.context.leadership[tp].leader_and_isr


async def stored(cluster, tp=T0):
    return (await cluster.admin.states.get_one(tp)).leader_and_isr


async def topic(cluster, *replicas, name="t", **config):
    await cluster.create_topic(name, dict(enumerate(replicas)), config)
    await cluster.settle()


def decisions(cluster):
    return [
        what[1]
        for kind, what in cluster.lines
        if kind == "journal" and what[1]["kind"] == "decision"
    ]


def test_a_state_that_changed_in_between_is_decided_again(monkeypatch):
    async def scene(cluster):
        await topic(cluster, (2, 3, 1), (2, 1, 3))
        read = PartitionStates.get
        disturbed = []

        async def read_and_disturb(states, partitions, *rest):
            found = await read(states, partitions, *rest)
            if states is not cluster.admin.states and not disturbed:
                disturbed.append(True)
                # The leader shrank its ISR at the same moment: 3 is no longer in sync.
                new = LeaderAndIsr(2, 0, (2, 1), 0)
                await cluster.admin.states.update({T0: new}, 1)
            return found

        monkeypatch.setattr(PartitionStates, "get", read_and_disturb)
        await cluster.kill(2)
        await cluster.settle()
        assert (await stored(cluster)).leader == 1
        assert (await stored(cluster, partition("t-1"))).leader == 1
        again = [d["outcome"] for d in decisions(cluster) if d["partition"] == "t-0"]
        assert "decided again" in again
        assert known(cluster) == await stored(cluster)

    play(scene, 1, 2, 3)


def test_a_watch_that_fires_before_its_answer_is_noted_is_set_again(monkeypatch):
    path_exists = Access.path_exists
    early = []

    async def fires_at_once(self, path, callback=None):
        # As when answer and event come in one piece: the event is handled first.
        if path != znodes.CONTROLLER or early:
            return await path_exists(self, path, callback)
        early.append(path)
        found = await path_exists(self, path)
        callback(None)
        return found

    monkeypatch.setattr(Access, "path_exists", fires_at_once)

    async def scene(cluster):
        assert early
        await cluster.admin.session.delete(znodes.CONTROLLER)
        await cluster.settle()
        assert cluster.active.epoch == 2, "the cluster has no controller"

    play(scene, 1)


def test_one_of_three_is_elected_and_epochs_go_up_by_one():
    async def scene(cluster):
        for epoch in (2, 3, 4):
            active = cluster.active
            (who,) = [b for b, s in cluster.brokers.items() if s.controller is active]
            await cluster.kill(who)
            await cluster.settle()
            assert cluster.active.epoch == epoch
            await cluster._join(cluster.brokers[who])
            await cluster.settle()
        assert sum(s.controller.is_active for s in cluster.brokers.values()) == 1

    play(scene, 1, 2, 3)


def test_a_controller_resigns_when_another_is_named():
    async def scene(cluster):
        await topic(cluster, (1, 2))
        first = cluster.active
        epoch, version = await cluster.admin.election.get_epoch()
        await cluster.brokers[2].session.multi(
            [
                Delete(znodes.CONTROLLER),
                Create(znodes.CONTROLLER, znodes.encode_controller(2, 0), ephemeral=True),
                Set(znodes.CONTROLLER_EPOCH, str(epoch + 1).encode(), version),
            ]
        )
        await cluster.settle()
        assert not first.is_active
        assert first.context is None
        with pytest.raises(NotControllerError):
            await first.elect_leaders(ElectionKind.PREFERRED, None)

    play(scene, 1, 2)


@pytest.mark.parametrize("how", ["another is named", "session lost"])
def test_nothing_of_a_term_outlives_it(how):
    """Its lines to brokers, the timer of its balance and its watches are nobody's."""

    async def scene(cluster):
        await topic(cluster, (1, 2))
        first, second = cluster.active, cluster.brokers[2].controller
        term = first._term
        timers, watch = list(term.timers), term.watcher(LeaderBalanceDue())
        (balance,) = [t for t in timers if not t.cancelled()]
        assert balance.when() - asyncio.get_running_loop().time() <= 5, "the first one comes early"
        lines = [t for t in asyncio.all_tasks() if t.get_name().startswith("controller-to-")]
        assert len(lines) == 2
        if how == "another is named":
            epoch, version = await cluster.admin.election.get_epoch()
            await cluster.brokers[2].session.multi(
                [
                    Delete(znodes.CONTROLLER),
                    Create(znodes.CONTROLLER, znodes.encode_controller(2, 0), ephemeral=True),
                    Set(znodes.CONTROLLER_EPOCH, str(epoch + 1).encode(), version),
                ]
            )
        else:
            await first.on_session_lost()
        await cluster.settle()
        assert term.ended
        assert all(t.cancelled() for t in timers)
        assert all(line.done() for line in lines)
        assert term.channels.statistics() == {}
        events = []
        first._post = second._post = term.post = events.append
        watch(WatchEvent(WatchType.DATA_CHANGED, znodes.CONTROLLER))
        term._on_timer(LeaderBalanceDue())
        assert events == []

    play(scene, 1, 2, **{"auto.leader.rebalance.enable": "true"})


def test_f45_a_broker_that_fell_behind_is_told_again_what_it_is_to_catch_up_with():
    """A new replica that it could not create is told as new, each time until it has caught up."""
    new = PartitionReplica(T0, 3)

    async def scene(cluster):
        await topic(cluster, (1, 2))
        await cluster.admin.admin_requests.create_reassignment({T0: (1, 3)})
        await cluster.settle()
        for _ in range(2):
            cluster.told[1].clear()
            cluster.active._post(FullResyncDue(3))
            await cluster.settle()
            told = [t for t in cluster.told[1] if t.api_key == LEADER_AND_ISR]
            assert [t.broker for t in told] == [3]
            (state,) = told[0].message.topic_states[0].partition_states
            assert (state.leader, state.leader_epoch, state.is_new) == (1, 1, True)
            assert cluster.active.context.replica_states[new] is ReplicaState.NEW
        assert await cluster.ask_isr(T0, (1, 2, 3)) == ErrorCode.NONE
        await cluster.settle()
        assert cluster.active.context.assignment(T0) == ReplicaAssignment((1, 3))

    play(scene, 1, 2, 3)


def test_a_broker_that_knows_a_newer_controller_makes_the_old_one_look():
    async def scene(cluster):
        looked = []
        controller = cluster.active
        right = controller._resign_if_moved

        async def look(cause):
            looked.append(True)
            return await right(cause)

        controller._resign_if_moved = look
        cluster.highest_epoch = 99  # the stubs answer STALE_CONTROLLER_EPOCH from here on
        await topic(cluster, (2, 1))
        assert looked

    play(scene, 1, 2)


def test_garbage_in_znodes_takes_nothing_else_down():
    async def scene(cluster):
        await topic(cluster, (1, 2), (2, 1))
        session = cluster.admin.session
        await session.create("/brokers/topics/bad", b"{not json")
        await session.create("/brokers/topics/worse", b'{"partitions":{"x":[1]}}')
        await session.create("/brokers/ids/77", b"\xff\xfe")
        await session.create("/brokers/ids/x", b"{}")
        await session.create("/isr_change_notification/isr_change_", b"[]", sequence=True)
        await session.create("/log_dir_event_notification/log_dir_event_", b"?", sequence=True)
        await session.create("/admin/reassign_partitions", b'{"partitions":7}')
        await session.create("/admin/preferred_replica_election", b"null")
        await session.set("/brokers/topics/t/partitions/1/state", b"garbage")
        await cluster.settle()
        await cluster.kill(2)
        await cluster.settle()
        assert (await stored(cluster)).isr == (1,)
        await topic(cluster, (1,), name="after")
        assert (await stored(cluster, partition("after-0"))).leader == 1
        assert await session.exists("/admin/preferred_replica_election") is None
        # A new controller starts in the same mess.
        await cluster._join(cluster.brokers[2])
        await cluster.settle()
        await cluster.kill(1)
        await cluster.settle()
        assert cluster.active is cluster.brokers[2].controller
        assert set(cluster.active.context.topics) == {"t", "after"}

    play(scene, 1, 2)


def test_requests_in_flight_are_refused_when_the_session_ends():
    async def scene(cluster):
        await topic(cluster, (1, 2))
        controller = cluster.active
        asking = [
            asyncio.ensure_future(controller.alter_partition(AlterPartitionRequest(broker_id=1)))
            for _ in range(3)
        ]
        await asyncio.sleep(0)
        await controller.on_session_lost()
        answers = await asyncio.gather(*asking)
        assert {a.error_code for a in answers} <= {
            ErrorCode.NOT_CONTROLLER,
            ErrorCode.STALE_BROKER_EPOCH,
        }
        assert answers[-1].error_code == ErrorCode.NOT_CONTROLLER
        after = await controller.controlled_shutdown(ControlledShutdownRequest(broker_id=2))
        assert after.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert not controller.is_active
        await controller.start(cluster.brokers[1].store)
        await cluster.settle()

    play(scene, 1, 2)


def test_watches_outlive_a_lost_connection():
    async def scene(cluster):
        stub = cluster.brokers[1]
        cluster.zookeeper.disconnect(stub.session.session_id)
        await stub.session.wait_connected()
        await cluster.settle()
        await topic(cluster, (1, 2))
        assert known(cluster).leader == 1
        await cluster.kill(2)
        await cluster.settle()
        assert known(cluster).isr == (1,)
        assert cluster.active.epoch == 1

    play(scene, 1, 2)


def test_an_election_whose_reply_is_lost_is_recognised():
    async def scene(cluster):
        multis = []

        def the_election(op, _path):
            multis.extend([op] * (op == jute.MULTI))
            return len(multis) == 2  # the first one registers the broker

        cluster.zookeeper.lose_reply(the_election)
        await cluster.start(1)
        await cluster.brokers[1].session.wait_connected()
        for _ in range(20):
            await cluster.settle()
            if cluster.brokers[1].controller.is_active:
                break
            await asyncio.sleep(0.01)
        assert len(multis) == 2
        assert cluster.active.epoch == 1
        assert await cluster.admin.election.get_epoch() == (1, 1)
        await topic(cluster, (1,))
        assert known(cluster).leader == 1

    play(scene)


def test_a_topic_without_an_id_gets_one():
    async def scene(cluster):
        info = TopicInfo("old", None, {0: ReplicaAssignment((2, 1))})
        await cluster.admin.topics.create(info)
        await cluster.settle()
        found = (await cluster.admin.topics.get_many(["old"]))["old"]
        assert found.topic_id is not None
        assert cluster.active.context.topic_id("old") == found.topic_id
        assert known(cluster, partition("old-0")).leader == 2

    play(scene, 1, 2)


def test_unclean_elections_begin_when_they_are_allowed():
    async def scene(cluster):
        await topic(cluster, (2, 1))
        request = AlterPartitionRequest  # the leader drops 1 from the ISR, then dies
        response = await cluster.active.alter_partition(
            request(
                broker_id=2,
                broker_epoch=cluster.brokers[2].epochs[-1],
                topics=[
                    request.TopicData(
                        topic_id=cluster.active.context.topic_id("t"),
                        partitions=[
                            request.PartitionData(
                                partition_index=0,
                                new_isr_with_epochs=[request.BrokerState(broker_id=2)],
                            )
                        ],
                    )
                ],
            )
        )
        assert response.topics[0].partitions[0].error_code == 0
        await cluster.kill(2)
        await cluster.settle()
        assert known(cluster).leader == -1
        refused = await cluster.active.elect_leaders(ElectionKind.PREFERRED, [T0])
        assert refused[T0][0] == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        await cluster.admin.configs.set("topics", "t", {"unclean.leader.election.enable": "true"})
        cluster.active.unclean_election_enabled("t")
        await cluster.settle()
        assert known(cluster).leader == 1
        assert known(cluster).recovery_state == 1

    play(scene, 1, 2)


def test_a_person_may_ask_for_an_unclean_election():
    async def scene(cluster):
        await topic(cluster, (2, 1))
        await cluster.kill(2)
        await cluster.settle()
        needless = await cluster.active.elect_leaders(ElectionKind.UNCLEAN, [T0])
        assert needless[T0][0] == ErrorCode.ELECTION_NOT_NEEDED
        unknown = partition("x-1")
        answer = await cluster.active.elect_leaders(ElectionKind.UNCLEAN, [unknown])
        assert answer[unknown][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(scene, 1, 2)


def test_leadership_returns_when_too_much_of_it_is_elsewhere():
    async def scene(cluster):
        await topic(cluster, (2, 1), (2, 1), (1, 2))
        await cluster.kill(2)
        await cluster.settle()
        await cluster._join(cluster.brokers[2])
        await cluster.settle()
        for tp, state in list(cluster.active.context.leadership.items()):
            new = LeaderAndIsr(1, state.leader_and_isr.leader_epoch, (1, 2), -1)
            await cluster.admin.states.update({tp: new}, 1)
        await cluster.admin.isr_changes.notify(list(cluster.active.context.leadership))
        await cluster.settle()
        cluster.active._post(LeaderBalanceDue())
        await cluster.settle()
        assert [known(cluster, partition(f"t-{i}")).leader for i in range(3)] == [2, 2, 1]

    play(scene, 1, 2)


def test_a_broker_that_cannot_be_reached_is_told_in_order_once_it_can(monkeypatch):
    monkeypatch.setattr(channels, "RETRY_BACKOFF_S", 0.0)

    async def scene(cluster):
        cluster.brokers[2].deaf = True
        await topic(cluster, (1, 2))
        await topic(cluster, (2, 1), name="u")
        told = [t for t in cluster.told[1] if t.broker == 2]
        cluster.brokers[2].deaf = False
        for _ in range(300):
            await asyncio.sleep(0)
        late = [t for t in cluster.told[1] if t.broker == 2][len(told) :]
        names = [t.message.topic_states[0].topic_name for t in late if t.message.topic_states]
        assert names == ["t", "t", "u", "u"]

    play(scene, 1, 2)


def test_deletion_that_is_switched_off_only_removes_the_request():
    async def scene(cluster):
        await topic(cluster, (1,))
        await cluster.admin.topics.request_deletion("t")
        await cluster.settle()
        assert await cluster.admin.topics.get_deletions() == []
        assert "t" in cluster.active.context.topics

    play(scene, 1, **{"delete.topic.enable": "false"})


def test_a_failed_failover_gives_the_office_up(monkeypatch):
    monkeypatch.setattr("ottla.controller.loop.RESIGNATION_BACKOFF_S", 0.0)

    async def scene(cluster):
        from ottla.controller import failover

        right = failover.on_controller_failover
        failed = []

        async def fail_once(changes):
            if not failed:
                failed.append(changes.settings.controller_id)
                raise RuntimeError("planted")
            await right(changes)

        monkeypatch.setattr(failover, "on_controller_failover", fail_once)
        await cluster.kill(1)
        await cluster.settle()
        assert failed
        assert cluster.active.epoch == 3

    play(scene, 1, 2, 3)


def test_every_line_of_the_journal_is_json_with_a_cause():
    async def scene(cluster):
        await topic(cluster, (1, 2))
        await cluster.kill(2)
        await cluster.settle()
        kinds = {line[1][1]["kind"] for line in cluster.lines if line[0] == "journal"}
        assert kinds == {"event", "snapshot", "states", "decision", "told"}
        for _, (_, entry) in [line for line in cluster.lines if line[0] == "journal"]:
            assert entry["cause"] > 0
            json.dumps(entry)

    play(scene, 1, 2)


def test_partitions_added_to_a_topic_on_its_way_out_are_undone():
    async def scene(cluster):
        await topic(cluster, (1, 2))
        await cluster.kill(2)
        await cluster.settle()
        await cluster.admin.topics.request_deletion("t")
        await cluster.settle()
        await cluster.grow("t", {1: (1,)})
        await cluster.settle()
        info = (await cluster.admin.topics.get_many(["t"]))["t"]
        assert list(info.assignment) == [0]

    play(scene, 1, 2)


def test_an_event_that_fails_takes_no_other_with_it(monkeypatch, caplog):
    from ottla.controller.handlers import Handlers

    right = Handlers.handle
    failed = []

    async def fail_once(handlers, cause, event):
        result = await right(handlers, cause, event)
        if type(event).__name__ == "TopicsChanged" and not failed:
            failed.append(event)
            raise RuntimeError("planted")
        return result

    async def scene(cluster):
        monkeypatch.setattr(Handlers, "handle", fail_once)
        await topic(cluster, (1, 2))
        assert failed
        assert "event failed event=TopicsChanged" in caplog.text
        monkeypatch.setattr(Handlers, "handle", right)
        await topic(cluster, (2, 1), name="u")
        assert cluster.active.epoch == 1
        assert known(cluster, partition("u-0")).leader == 2

    play(scene, 1, 2)


def test_the_controller_epoch_outlives_all_brokers():
    async def scene(cluster):
        for broker in (2, 1):
            await cluster.kill(broker)
            await cluster.settle()
        epoch, _ = await cluster.admin.election.get_epoch()
        assert epoch == 1
        await cluster._join(cluster.brokers[2])
        await cluster.settle()
        assert cluster.active.epoch == 2

    play(scene, 1, 2)


def test_topic_ids_stay_with_their_topic_through_elections():
    async def scene(cluster):
        await topic(cluster, (1, 2))
        before = cluster.active.context.topic_id("t")
        stored_id = (await cluster.admin.topics.get_many(["t"]))["t"].topic_id
        assert before == stored_id
        for broker in (1, 2):
            await cluster.kill(broker)
            await cluster.settle()
            if broker == 1:
                assert cluster.active.context.topic_id("t") == before
        await cluster._join(cluster.brokers[1])
        await cluster.settle()
        assert cluster.active.context.topic_id("t") == before
        await cluster.admin.admin_requests.create_reassignment({T0: (1,)})
        await cluster.settle()
        assert (await cluster.admin.topics.get_many(["t"]))["t"].topic_id == before

    play(scene, 1, 2)


def test_a_topic_with_offline_replicas_is_led_by_a_live_one():
    async def scene(cluster):
        await cluster.kill(2)
        await cluster.settle()
        await topic(cluster, (2, 1))
        assert known(cluster) == LeaderAndIsr(1, 0, (1,), 0)
        await cluster.grow("t", {1: (2, 1)})
        await cluster.settle()
        assert known(cluster, partition("t-1")) == LeaderAndIsr(1, 0, (1,), 0)
        await cluster.grow("t", {2: (2,)})
        await cluster.settle()
        assert partition("t-2") not in cluster.active.context.leadership
        await cluster._join(cluster.brokers[2])
        await cluster.settle()
        assert known(cluster, partition("t-2")).leader == 2

    play(scene, 1, 2)


def test_a_broker_without_replicas_that_goes_is_told_of():
    async def scene(cluster):
        await topic(cluster, (1, 2))
        told = len(cluster.told[1])
        await cluster.kill(3)
        await cluster.settle()
        new = list(cluster.told[1])[told:]
        assert {t.broker for t in new} == {1, 2}
        assert all([b.id for b in t.message.live_brokers] == [1, 2] for t in new)

    play(scene, 1, 2, 3)


def test_a_target_with_a_broken_folder_takes_new_replicas():
    """What it has lies in the folder that is gone; what is new goes to another one."""

    async def scene(cluster):
        filler = partition("filler-0")
        await topic(cluster, (3,), name="filler")
        await topic(cluster, (1,))
        cluster.brokers[3].failed_replicas = {filler}
        await cluster.brokers[3].store.log_dir_events.notify(3)
        await cluster.settle()
        assert known(cluster, filler).leader == -1
        await cluster.admin.admin_requests.create_reassignment({T0: (3,)})
        await cluster.settle()
        assert await cluster.ask_isr(T0, [1, 3]) == 0
        await cluster.settle()
        assert cluster.active.context.assignment(T0) == ReplicaAssignment((3,))
        assert (known(cluster).leader, known(cluster).isr) == (3, (3,))

    play(scene, 1, 2, 3)


def test_f20_the_last_replica_in_sync_leads_again_when_its_broker_takes_it_back():
    """It was refused while another was in sync; when that one is gone, it is not refused."""

    async def scene(cluster):
        await topic(cluster, (2, 3))
        await cluster.kill(3)
        await cluster.settle()
        cluster.brokers[2].failed_replicas = {T0}
        await cluster.brokers[2].store.log_dir_events.notify(2)
        await cluster.settle()
        assert (known(cluster).leader, known(cluster).isr) == (-1, (2,))
        cluster.brokers[2].failed_replicas = set()
        await cluster.brokers[2].store.log_dir_events.notify(2)
        await cluster.settle()
        assert (known(cluster).leader, known(cluster).isr) == (2, (2,))

    play(scene, 1, 2, 3)


def test_f20_a_replica_that_a_reassignment_brings_back_is_online():
    """Its broker takes a damaged replica again at the next request that names it."""

    async def scene(cluster):
        await topic(cluster, (2, 3))
        cluster.brokers[2].failed_replicas = {T0}
        await cluster.brokers[2].store.log_dir_events.notify(2)
        await cluster.settle()
        states = cluster.active.context.replica_states
        assert states[PartitionReplica(T0, 2)] is ReplicaState.OFFLINE
        cluster.brokers[2].failed_replicas = set()
        await cluster.admin.admin_requests.create_reassignment({T0: (1, 2, 3)})
        await cluster.settle()
        assert states[PartitionReplica(T0, 2)] is ReplicaState.ONLINE

    play(scene, 1, 2, 3)


@pytest.mark.parametrize("what", ["delete", "prefer", "reassign"])
def test_each_request_of_an_old_controller_ends_its_term(what):
    async def scene(cluster):
        await topic(cluster, (2, 1))
        await cluster.kill(2)
        await cluster.settle()
        await cluster._join(cluster.brokers[2])
        await cluster.settle()
        assert await cluster.ask_isr(T0, [1, 2]) == 0
        before = await stored(cluster)
        old = cluster.active
        await cluster.usurp()
        if what == "delete":
            await cluster.admin.topics.request_deletion("t")
        elif what == "prefer":
            await cluster.admin.admin_requests.create_preferred_election([T0])
        else:
            await cluster.admin.admin_requests.create_reassignment({T0: (1, 3)})
        for _ in range(30):
            await cluster.settle()
            if old.epoch != 1 or not old.is_active:
                break
            await asyncio.sleep(0.05)
        assert old.epoch != 1 or not old.is_active
        state = await cluster.admin.states.get_one(T0)
        # What was done, was done by a controller elected since.
        assert state is None or state.leader_and_isr == before or state.controller_epoch > 2

    play(scene, 1, 2, 3)


def test_a_new_controller_finds_a_replica_without_leadership():
    """A topic nobody could lead yet: its live replicas are Online all the same."""

    async def scene(cluster):
        await cluster.kill(3)
        await cluster.settle()
        await topic(cluster, (3,))
        assert T0 not in cluster.active.context.leadership
        await cluster.kill(1)
        await cluster.settle()
        context = cluster.active.context
        replica = PartitionReplica(T0, 3)
        assert context.replica_states[replica] is ReplicaState.OFFLINE
        await cluster._join(cluster.brokers[3])
        await cluster.settle()
        assert context.replica_states[replica] is ReplicaState.ONLINE
        assert known(cluster).leader == 3

    play(scene, 1, 2, 3)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, {"features": {}, "version": 2, "status": 1}),
        (
            b'{"features":{"f":{"min_version_level":1,"max_version_level":2}},"version":1,"status":0}',
            {"features": {}, "version": 2, "status": 1},
        ),
        (
            b'{"features":{"f":{"min_version_level":1,"max_version_level":2}},"version":1,"status":1}',
            {"features": {"f": {"max_version_level": 2}}, "version": 2, "status": 1},
        ),
    ],
    ids=["none", "disabled", "enabled"],
)
def test_what_becomes_of_the_feature_znode(before, after):
    async def scene(cluster):
        if before is not None:
            await cluster.admin.session.create("/feature", before)
        await cluster.start(1)
        await cluster.settle()
        data, _ = await cluster.admin.session.get("/feature")
        assert json.loads(data) == after

    play(scene)
