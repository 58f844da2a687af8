"""What `ottla whatif` says of a cluster, beside what librdkafka's metadata shows afterwards."""

import json

from confluent_kafka import KafkaException

from support.clients import admin_client
from support.command_line import call
from support.schemas import partition_name
from support.waiting import until


def states(cluster):
    """Return (leader, ISR, replicas) of each partition, as librdkafka has it of every broker.

    Brokers hear of a change one by one, and one that has just started may know nothing yet: what
    they say counts once they say the same.
    """

    def agreed():
        said = [_told(cluster.address(b)) for b in cluster.ids if cluster.running(b)]
        return said[0] if all(one == said[0] for one in said) else None

    return until(agreed, 60, "all brokers say the same", despite=(KafkaException,))


def _told(address):
    topics = admin_client(address).list_topics(timeout=20).topics
    return {
        f"{name}-{n}": (p.leader, sorted(p.isrs), list(p.replicas))
        for name, topic in topics.items()
        for n, p in topic.partitions.items()
    }


def all_in_sync(cluster):
    return all(isr == sorted(replicas) for _, isr, replicas in states(cluster).values())


def settle(cluster):
    """Start whoever is down, and wait until all replicas are in sync under preferred leaders."""
    for broker in cluster.ids:
        if not cluster.running(broker):
            cluster.start_broker(broker)
    until(lambda: all_in_sync(cluster), 60, "all are in sync")
    assert call(cluster, "elect", "preferred", "--all").returncode == 0
    until(lambda: all(leader == r[0] for leader, _, r in states(cluster).values()), 30, "led")


def _number(leader):
    """Return a leader as Metadata has it."""
    return -1 if leader is None else leader


def predicted(cluster, *arguments, code):
    """Return what whatif says of each partition, those that do not change included."""
    before = states(cluster)
    done = call(cluster, "whatif", *arguments, "--output", "json")
    assert done.returncode == code, (done.stdout, done.stderr)
    found = json.loads(done.stdout)
    changed = {
        partition_name(c): (_number(c["leader_after"]), sorted(c["isr_after"]), c["replicas_after"])
        for c in found["changes"]
    }
    assert states(cluster) == before, "nothing changes"
    return found, {tp: changed.get(tp, state) for tp, state in before.items()}


def same(cluster, expected):
    until(lambda: states(cluster) == expected, 60, lambda: f"{states(cluster)} is {expected}")
