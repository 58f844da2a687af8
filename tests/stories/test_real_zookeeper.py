"""Stories on a real ZooKeeper: the same decisions, moves and requests as on the in-memory one.

Stories in which several brokers stand for election are left out: there the server decides.
"""

import asyncio
from pathlib import Path

import pytest
from story_harness import Cluster, RealZooKeeper
from story_script import Story

from ottla.net.runtime import real_world
from ottla.zookeeper.embedded import start_zookeeper

pytestmark = pytest.mark.java

STORIES = [
    Path(__file__).parent / f"{name}.txt"
    for name in (
        "topic_creation",
        "broker_failure",
        "controlled_shutdown",
        "isr_change",
        "topic_deletion",
        "reassignment",
        "log_dir_failure",
        "preferred_leader",
        "reassignment_overlap",
        "reassignment_factor",
        "eight_brokers",
    )
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    handle = start_zookeeper(tmp_path_factory.mktemp("zookeeper"), 0, heap_mb=96, fsync=False)
    yield handle
    handle.stop()


def told(text):
    """Return what a story says but for the znodes: the real server does not tell who wrote."""
    return [line for line in text.splitlines() if " zk " not in line]


@pytest.mark.parametrize("path", STORIES, ids=lambda p: p.stem)
def test_the_real_zookeeper_makes_no_difference(path, server):
    network = real_world(None, seed=1).network
    real = RealZooKeeper(f"{server.connect_string}/{path.stem}")
    story = Story(path, lambda settings: Cluster.create_on(real, network, settings))
    assert told(asyncio.run(story.run())) == told(path.read_text())
