"""R13 on brokers: a replica that left the ISR below min.insync.replicas leads after the last."""

import pytest

from ottla.model.ids import TopicPartition
from ottla.wire.messages.configs import IncrementalAlterConfigsRequest
from ottla.wire.messages.topics import CreateTopicsRequest

TP = TopicPartition("t", 0)


def led_by(scene):
    known = scene.brokers["b4"].services.metadata.partition("t", 0)
    return (known.leader, sorted(known.isr))


def below_min_isr(scene):
    """A record is acknowledged by 1, 2, 3; then 3 dies, 2 stops cleanly, and 1 loses power."""
    for number in (4, 1, 2, 3):
        scene.up(number)
    r = CreateTopicsRequest
    topic = r.CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[r.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, 3])],
        configs=[r.CreatableTopicConfig(name="min.insync.replicas", value="2")],
    )
    assert scene.ask(4, r(topics=[topic], timeout_ms=10_000), 7).topics[0].error_code == 0
    metadata = scene.brokers["b4"].services.metadata
    scene.wait(lambda: metadata.contains("t") and led_by(scene) == (1, [1, 2, 3]))
    scene.produce("t")
    scene.simulation.node("b3").crash()
    scene.wait(lambda: led_by(scene) == (1, [1, 2]))
    scene.stop(2)
    scene.wait(lambda: led_by(scene) == (1, [1]))
    scene.simulation.node("b1").crash(power_loss=True)
    scene.wait(lambda: led_by(scene) == (-1, [1]))


def test_a_clean_replica_leads_where_the_last_one_in_sync_is_gone(scene):
    """Kafka in ZooKeeper mode waits for 1, and elects it with whatever it kept."""
    below_min_isr(scene)
    scene.up(2)
    scene.wait(lambda: led_by(scene) == (2, [2]))
    assert scene.brokers["b2"].logs.get(TP).log_end_offset == 1, "what was acknowledged"


def test_the_last_one_in_sync_does_not_win_after_a_power_loss(scene):
    """1 is back first, and perhaps with less than 2 has: 2 is waited for."""
    below_min_isr(scene)
    scene.up(1)
    scene.simulation.run_for(5)
    assert led_by(scene) == (-1, [1])
    scene.up(2)
    scene.wait(lambda: led_by(scene)[0] == 2)
    scene.wait(lambda: led_by(scene) == (2, [1, 2]))


SET, DELETE = 0, 1


def configure(scene, name, operation):
    """Set min.insync.replicas=1 for all brokers (no name) or for one, or take it back."""
    r = IncrementalAlterConfigsRequest
    entry = r.AlterConfigsResource(
        resource_type=4,
        resource_name=name,
        configs=[
            r.AlterableConfig(name="min.insync.replicas", config_operation=operation, value="1")
        ],
    )
    to = int(name or 4)
    assert scene.ask(to, r(resources=[entry]), 1).responses[0].error_code == 0


@pytest.mark.parametrize(
    "changes", [("", SET, DELETE), ("1", SET), ("1", SET, DELETE), ("file",), ()]
)
def test_a_replica_without_what_the_last_one_acknowledged_alone_does_not_lead(scene, changes):
    """min.insync.replicas was lowered meanwhile: Kafka in ZooKeeper mode waits for 1."""
    for number in (4, 1, 2, 3):
        own = "1" if number == 1 and changes == ("file",) else "2"
        scene.up(number, **{"min.insync.replicas": own})
    r = CreateTopicsRequest
    replicas = [r.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, 3])]
    topic = r.CreatableTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=replicas
    )
    assert scene.ask(4, r(topics=[topic], timeout_ms=10_000), 7).topics[0].error_code == 0
    metadata = scene.brokers["b4"].services.metadata
    scene.wait(lambda: metadata.contains("t") and led_by(scene) == (1, [1, 2, 3]))
    scene.produce("t")
    for number in (3, 2):
        scene.simulation.node(f"b{number}").crash()
        scene.wait(lambda gone=number: gone not in led_by(scene)[1])
    if changes:
        name, *operations = changes
        for operation in operations[:1]:
            configure(scene, name, operation)
        scene.simulation.run_for(2)
        scene.produce("t", 5)
        for operation in operations[1:]:
            configure(scene, name, operation)
        scene.simulation.run_for(2)
    scene.simulation.node("b1").crash()
    scene.wait(lambda: led_by(scene) == (-1, [1]))
    scene.up(2, **{"min.insync.replicas": "2"})
    scene.simulation.run_for(20)
    if changes:
        assert led_by(scene) == (-1, [1])
        scene.up(1, **{"min.insync.replicas": "2"})
        scene.wait(lambda: led_by(scene) == (1, [1, 2]))
        assert scene.brokers["b2"].logs.get(TP).log_end_offset == 6
    else:
        assert led_by(scene) == (2, [2])
