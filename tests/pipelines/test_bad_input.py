"""What is wrong in the world: one line, exit code 1, a bounded time, and nothing overwritten.

What is known without Spark is refused without it: most tests here start none. The rest share one
session.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

sys.path.insert(0, str(Path(__file__).parent.parent))
from ottla.cli.grammar import read
from ottla.pipelines import job, replay
from ottla.pipelines.lake import command as lake
from ottla.pipelines.lake.landing import Landing
from ottla.zookeeper import jars
from support import replayed
from support.cluster import OttlaCluster
from support.landed import Produced, by_library, differences, numbered, run_here, settings_of
from support.streams import run_to_its_end

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    names = (
        "offsets_topic_num_partitions", "offsets_topic_replication_factor",
        "transaction_state_log_num_partitions", "transaction_state_log_replication_factor",
        "transaction_state_log_min_isr",
    )  # fmt: skip
    settings = dict.fromkeys(names, "1")
    with OttlaCluster(tmp_path_factory.mktemp("cluster"), brokers=1, **settings) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster, request):
    """Make a topic that is called as the test."""

    def make(more="", partitions=1):
        name = request.node.name.replace("[", ".").replace("]", "") + more
        subprocess.run(
            [sys.executable, "-m", "ottla", "topics", "create", name, "--partitions",
             str(partitions), "--replication-factor", "1",
             "--bootstrap-server", cluster.bootstrap],
            check=True, timeout=60,
        )  # fmt: skip
        return Produced(cluster.bootstrap, name)

    return make


def tree(folder):
    """Return every file below a folder, and what is in it; locks aside."""
    files = (p for p in folder.rglob("*") if p.is_file() and p.name != "lock")
    return {p.relative_to(folder): p.read_bytes() for p in files}


@pytest.fixture
def refused(capsys, tmp_path):
    """Run a job that must refuse, with one line; what is below `tmp_path` stays as it was."""

    def refused(main, *arguments, says, within_s=30.0):
        before, began = tree(tmp_path), time.monotonic()
        capsys.readouterr()
        code = main([*map(str, arguments)])
        found = capsys.readouterr()
        assert (code, found.out) == (1, "")
        assert found.err.startswith("pipeline ")
        assert found.err.count("\n") == 1, found.err
        assert says in found.err
        assert time.monotonic() - began < within_s
        assert tree(tmp_path) == before
        return found.err

    return refused


def sets(found):
    return [x for one in found for x in ("--set", one)]


def in_session(module, spark):
    """Return a job's `main` that uses a session which is there."""

    def main(arguments):
        options = read(module.Options, arguments)
        name = getattr(module, "NAME", replay.REPLAY)
        return job.run(name, lambda: module.run(options, spark))

    return main


def mirror(arguments):
    return job.main(replay.MIRROR, arguments)


# -- topics that are not there ---------------------------------------------------------------------


def test_an_unknown_topic(cluster, refused, tmp_path):
    where, says = cluster.bootstrap, f"topic nosuch does not exist at {cluster.bootstrap}"
    refused(lake.main, *sets(settings_of(where, tmp_path / "lake", ["nosuch"])), says=says)
    for main in (replay.main, mirror):
        refused(main, *sets(replayed.settings_of(where, where, "nosuch", "to")), says=says)


# -- offsets that are gone -------------------------------------------------------------------------


def delete_records(bootstrap, topic, offset):
    from confluent_kafka import TopicPartition

    from support.clients import admin_client

    admin = admin_client(bootstrap)
    futures = admin.delete_records([TopicPartition(topic, 0, offset)])
    assert [f.result(30).low_watermark for f in futures.values()] == [offset]


def test_offsets_that_are_gone(cluster, spark, topic, refused, tmp_path):
    """Of the source itself: test_topic_source.py."""
    produced = topic().send(numbered(0, 40))
    landing = settings_of(cluster.bootstrap, tmp_path / "lake", [produced.topic])
    copying = replayed.settings_of(
        cluster.bootstrap, cluster.bootstrap, produced.topic, "gone-copy", create=True
    )
    assert run_here(spark, landing).code == 0
    assert replayed.run_here(spark, copying).code == 0
    produced.send(numbered(40, 40))
    delete_records(cluster.bootstrap, produced.topic, 60)
    says = f"{produced.topic}-0: offsets 40..59 were removed from the cluster before they landed"
    refused(in_session(lake, spark), *sets(landing), says=says, within_s=60)
    says = (
        f"{produced.topic}-0: offsets 40..59 were removed from the cluster before they were copied"
    )
    refused(in_session(replay, spark), *sets(copying), says=says, within_s=60)
    assert len(replayed.read_all(cluster.bootstrap, "gone-copy")) == 40


# -- tables and checkpoints of something else ------------------------------------------------------


def test_a_schema_that_clashes(cluster, spark, topic, refused, tmp_path):
    produced = topic().send(numbered(0, 20))
    landing = settings_of(cluster.bootstrap, tmp_path / "lake", [produced.topic])
    assert run_here(spark, landing).code == 0
    other = [one for one in landing if not one.startswith("value.schema")]
    (tmp_path / "other.ddl").write_text("n string, day string, note string")
    clash = [*other, f"value.schema={tmp_path}/other.ddl"]
    line = refused(in_session(lake, spark), *sets(clash), says="column n", within_s=60)
    assert "bigint" in line
    (tmp_path / "other.ddl").write_text("n strong")
    refused(in_session(lake, spark), *sets(clash), says="other.ddl", within_s=60)


def test_a_lake_of_another_pipeline(cluster, spark, topic, refused, tmp_path):
    one, other = topic("-a").send(numbered(0, 20)), topic("-b").send(numbered(0, 20))
    landing = settings_of(cluster.bootstrap, tmp_path / "lake", [one.topic])
    assert run_here(spark, landing).code == 0
    shutil.move(tmp_path / "lake" / one.topic, tmp_path / "lake" / other.topic)
    refused(
        lake.main, *sets(settings_of(cluster.bootstrap, tmp_path / "lake", [other.topic])),
        says=f"the table is of topic {one.topic}; name another lake",
    )  # fmt: skip
    (tmp_path / "old" / one.topic).mkdir(parents=True)
    (tmp_path / "old" / one.topic / "table.json").write_text("{}")
    refused(
        lake.main, *sets(settings_of(cluster.bootstrap, tmp_path / "old", [one.topic])),
        says="convert it with --migrate",
    )  # fmt: skip
    stranger = tmp_path / "else" / one.topic
    stranger.mkdir(parents=True)
    (stranger / "part-0.parquet").write_bytes(b"somebody's")
    refused(
        lake.main, *sets(settings_of(cluster.bootstrap, tmp_path / "else", [one.topic])),
        says="is not empty and does not hold a table of this job",
    )  # fmt: skip
    copying = replayed.settings_of(
        cluster.bootstrap, cluster.bootstrap, one.topic, f"{one.topic}-copy", create=True,
        offset_map=str(stranger),
    )  # fmt: skip
    refused(
        in_session(replay, spark), *sets(copying), says="has files, but no _ottla-map.json",
        within_s=60,
    )  # fmt: skip
    from support.clients import admin_client

    assert f"{one.topic}-copy" not in admin_client(cluster.bootstrap).list_topics(timeout=20).topics


def test_a_checkpoint_of_another_topic(cluster, spark, topic, tmp_path):
    first, second = topic("-a").send(numbered(0, 20)), topic("-b").send(numbered(0, 30))

    def run(name, **options):
        reading = spark.readStream.format("ottla").options(
            bootstrap=cluster.bootstrap, subscribe=name, startingOffsets="earliest", **options
        )
        writing = reading.load().writeStream.format("parquet").option("path", f"{tmp_path}/rows")
        writing = writing.option("checkpointLocation", f"{tmp_path}/checkpoint")
        run_to_its_end(writing.trigger(availableNow=True).start, 120)

    run(first.topic)
    before = tree(tmp_path / "rows")
    for policy in ("fail", "earliest"):
        with pytest.raises(Exception, match="checkpoint") as error:
            run(second.topic, onDataLoss=policy)
        line = job.in_one_line(error.value)
        assert line == (
            f"the checkpoint is of {first.topic}, this stream reads {second.topic}: "
            "give it a checkpoint of its own"
        )
        assert tree(tmp_path / "rows") == before


# -- brokers that do not answer --------------------------------------------------------------------


@pytest.fixture
def silent():
    """Listen, take connections and never answer."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def full():
    """Listen, with a queue of connections that is full: packets of new ones are dropped."""
    held = []
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        for _ in range(4):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(listening.getsockname())
            held.append(one)
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        for one in held:
            one.close()


QUICK = "cluster.options={'request.timeout.ms' = '700', 'default.api.timeout.ms' = '1500'}"
LESS_QUICK = QUICK.replace("1500", "6000").replace("700", "3000")
"""For a broker that answers at first, also when it waits for a core."""


@pytest.mark.parametrize("who", ["silent", "full"])
def test_a_cluster_that_does_not_answer(who, request, refused, tmp_path):
    """The line says which address, and for how long it was waited for."""
    address = request.getfixturevalue(who)
    says = {
        "silent": f"{address} accepts connections but did not respond within 0.7 s",
        "full": f"no response from {address} within 1.5 s",
    }[who]
    landing = settings_of(address, tmp_path / "lake", ["t"])
    refused(lake.main, *sets([*landing, QUICK]), says=says, within_s=20)
    copying = replayed.settings_of(address, address, "t", "u")
    quick = [QUICK.replace("cluster", side) for side in ("source", "target")]
    refused(replay.main, *sets([*copying, *quick]), says=says, within_s=20)


def test_several_addresses_that_do_not_answer_take_no_longer(silent, full, refused, tmp_path):
    both = f"{silent},{full}"
    landing = settings_of(both, tmp_path / "lake", ["t"])
    quick = QUICK.replace("1500", "1000")
    says = f"no response from {both} within 1 s"
    refused(lake.main, *sets([*landing, quick]), says=says, within_s=20)


def test_a_cluster_that_stops_answering_amid_the_run(
    cluster, spark, topic, monkeypatch, refused, tmp_path
):
    produced = topic().send(numbered(0, 50))
    landing = settings_of(cluster.bootstrap, tmp_path / "lake", [produced.topic])
    real = Landing._land

    def paused(self, spark, batch):
        cluster.pause(0)
        return real(self, spark, batch)

    try:
        with monkeypatch.context() as patched:
            patched.setattr(Landing, "_land", paused)
            done = run_here(spark, [*landing, LESS_QUICK])
    finally:
        cluster.resume(0)
    assert (done.code, done.told.count("\n")) == (1, 1), done.told
    assert cluster.address(0) in done.told
    assert " s" in done.told
    assert done.result == {}
    assert by_library(tmp_path / "lake" / produced.topic / "data") == []
    again = run_here(spark, landing)
    assert again.code == 0, again.told
    assert differences(by_library(tmp_path / "lake" / produced.topic / "data"), produced) == []


# -- outputs ---------------------------------------------------------------------------------------


def test_an_output_that_cannot_be_written(cluster, spark, topic, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed").chmod(0o500)
    below = ["file/new"]
    if os.geteuid():  # root may write everywhere
        below.append("closed/new")
    produced = topic().send(numbered(0, 20))
    for path in below:
        landing = settings_of(cluster.bootstrap, path, [produced.topic])
        refused(lake.main, *sets(landing), says=path)
        copying = replayed.settings_of(
            cluster.bootstrap, cluster.bootstrap, produced.topic, "unwritten", create=True,
            offset_map=path,
        )  # fmt: skip
        refused(in_session(replay, spark), *sets(copying), says=path, within_s=60)


# -- a full disk -----------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """Mount a file system of so many KiB in memory; skipped where that is not allowed."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(*options):
        command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)]
        return subprocess.run(command, capture_output=True, check=False, timeout=20).returncode == 0

    if not mount("size=256k"):
        pytest.skip("no file system may be mounted here")

    def grow():
        assert mount("remount", "size=64m")

    yield folder, grow
    subprocess.run(["umount", "-l", str(folder)], check=True, timeout=20)


def test_a_full_disk_of_a_lake(cluster, spark, topic, small_disk):
    folder, grow = small_disk
    produced = topic().send(numbered(0, 200))
    landing = settings_of(cluster.bootstrap, folder, [produced.topic])
    assert run_here(spark, landing).code == 0
    big = [(None, json.dumps({"n": n, "note": os.urandom(3000).hex()}).encode()) for n in range(99)]
    produced.send(big)
    before = by_library(folder / produced.topic / "data")
    failed = run_here(spark, landing)
    assert (failed.code, failed.told.count("\n")) == (1, 1), failed.told
    assert "No space left on device" in failed.told
    # Files that a failed commit may have named stay until `--compact` removes them.
    assert by_library(folder / produced.topic / "data") == before
    grow()
    done = run_here(spark, landing)
    assert done.code == 0, done.told
    assert differences(by_library(folder / produced.topic / "data"), produced) == []


def test_a_full_disk_of_an_offset_map(cluster, spark, topic, small_disk, capsys):
    folder, grow = small_disk
    produced = topic().send(numbered(0, 20))
    (folder / "filler").write_bytes(bytes(252 * 1024))
    copying = replayed.settings_of(
        cluster.bootstrap, cluster.bootstrap, produced.topic, f"{produced.topic}-copy", create=True,
        offset_map=str(folder / "map"),
    )  # fmt: skip
    capsys.readouterr()
    assert in_session(replay, spark)(sets(copying)) == 1
    told = capsys.readouterr().err.splitlines()
    assert "No space left on device" in told[-1]
    assert len([line for line in told if line.startswith("pipeline ")]) == 1, told
    assert (folder / "filler").stat().st_size == 252 * 1024
    grow()
    done = replayed.run_here(spark, copying, "--verify")
    assert (done.code, done.result["exactly_once"]) == (0, True), done
    source = replayed.read_all(cluster.bootstrap, produced.topic)
    target = replayed.read_all(cluster.bootstrap, f"{produced.topic}-copy")
    assert replayed.differences(source, target) == []


# -- Java and jars ---------------------------------------------------------------------------------


@pytest.fixture
def landing(cluster, topic, tmp_path):
    """A lake of a topic that is there, so that nothing but Java is missing."""
    return sets(settings_of(cluster.bootstrap, tmp_path / "lake", [topic().topic]))


@pytest.fixture
def refused_landing(landing, capsys):
    def refused_landing(says):
        assert lake.main(landing) == 1
        told = capsys.readouterr().err
        assert told.count("\n") == 1, told
        assert says in told

    return refused_landing


def test_no_java(refused_landing, monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(jars, "_package_folder", lambda _: None)
    refused_landing("no Java found, which Spark needs")


def test_a_java_that_is_none_or_too_old(refused_landing, monkeypatch, tmp_path):
    home = tmp_path / "jre"
    monkeypatch.setenv("JAVA_HOME", str(home))
    refused_landing(f"JAVA_HOME={home} has no bin/java")
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(0o755)
    (home / "release").write_text('JAVA_VERSION="11.0.21"\n')
    refused_landing("is Java 11.0.21, Spark needs 17 or newer")


def command(*arguments, **environment):
    """Run `ottla pipeline` in a process of its own; return its exit code and stderr's lines."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "pipeline", *map(str, arguments)],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.stdout == ""
    return done.returncode, done.stderr.splitlines()


def test_a_java_that_does_not_start(landing):
    code, told = command("lake", *landing, "--conf", "spark.driver.memory=1z")
    assert code == 1
    assert len(told) == 1, told
    assert told[0].startswith("pipeline lake: Spark's Java process ended at its start: ")
