"""The lake's Delta tables against real brokers: each record once for every reader of Delta.

The truth is what the producer's acknowledgements say. Readers are delta-rs, a reader of the
protocol of our own, DuckDB where it has its extension, and Spark with Delta's own jars.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

TESTS = Path(__file__).parent.parent
sys.path.insert(0, str(TESTS))
from ottla.cli.grammar import read  # noqa: E402
from support.cluster import OttlaCluster  # noqa: E402
from support.delta_readers import by_delta_rs, by_duckdb, by_protocol, by_spark_delta, spark_jars  # noqa: E402
from support.delta_stages import STAGES  # noqa: E402
from support.landed import Produced, by_pyarrow, differences, numbered, run_here, settings_of  # noqa: E402

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with OttlaCluster(tmp_path_factory.mktemp("cluster"), brokers=1) as cluster:
        yield cluster


@pytest.fixture
def produced(cluster, request):
    """A topic that is called as the test."""
    name = request.node.name
    create = [sys.executable, "-m", "ottla", "topics", "create", name, "--partitions", "2"]
    where = ["--replication-factor", "1", "--bootstrap-server", cluster.bootstrap]
    subprocess.run([*create, *where], check=True, timeout=60)
    return Produced(cluster.bootstrap, name)


def run_until(stage, batch, what, arguments, timeout=120):
    """Run the job as a process that dies at a stage; return its exit code and what it told."""
    command = [sys.executable, str(TESTS / "support" / "delta_stages.py"), stage, str(batch), what]
    process = subprocess.Popen(
        [*command, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, told = process.communicate(timeout=timeout)
    finally:
        with suppress(ProcessLookupError):  # Spark's Java process is in the group, too
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
    return process.returncode, told


def as_sets(sets):
    return [x for one in sets for x in ("--set", one)]


def next_batch(table):
    """Return the number that the next batch will have."""
    return max((int(p.name[6:]) + 1 for p in (table / "data").glob("batch=*")), default=0)


def places(rows):
    found = [(row["kafka_partition"], row["kafka_offset"]) for row in rows]
    assert len(found) == len(set(found))
    return set(found)


def seen_now(table, produced):
    """Read the Delta tables as they are now: nothing twice, nothing foreign; return the places."""
    if not (table / "delta/data/_delta_log").exists():
        return set()
    rows = by_delta_rs(table / "delta/data")
    there = places(rows)
    assert there == places(by_protocol(table / "delta/data"))
    if (table / "delta/dead/_delta_log").exists():
        assert not there & places(by_delta_rs(table / "delta/dead"))
    assert there <= produced.acked.keys()
    return there


def whole(table, produced):
    """Hold both Delta tables, by two readers, against all that was acknowledged."""
    for reader in (by_delta_rs, by_protocol):
        rows, dead = reader(table / "delta/data"), reader(table / "delta/dead")
        assert differences(rows, produced, dead) == []
    counts = by_duckdb(table / "delta/data")
    if not isinstance(counts, str):
        assert counts == (len(rows), len(rows))


def test_killed_at_each_stage_of_a_commit_and_of_a_compaction(produced, tmp_path):
    """No Spark here: the job with it is killed in the test below, which CI leaves out."""
    pytest.importorskip("deltalake")
    produced.send(numbered(0, 900))
    sets = settings_of(
        produced.bootstrap, tmp_path, [produced.topic], lake__format="delta",
        lake__batch_records=120,
    )  # fmt: skip
    table = tmp_path / produced.topic
    before = set()
    for stage in STAGES:
        code, told = run_until(stage, next_batch(table), "land", sets)
        assert code == -signal.SIGKILL, told
        there = seen_now(table, produced)
        committed = places(by_pyarrow(table / "data")) if any((table / "data").iterdir()) else set()
        assert there in (before, committed)
        behind = stage in STAGES[1:3]
        assert (len(committed) > len(there)) == behind, stage
        before = committed
    for stage in ("before the manifest's rename", "before the rows' version"):
        arguments = ["--compact", *as_sets(sets)]
        code, told = run_until(stage, next_batch(table), "--", arguments)
        assert code == -signal.SIGKILL, (stage, told)
        assert seen_now(table, produced) == places(by_pyarrow(table / "data"))
    code, told = run_until("none", 0, "land", [*sets, "lake.batch_records=1000"])
    assert code == 0, told
    assert len(seen_now(table, produced)) == 900
    whole(table, produced)

    # A version that adds files once more: readers would see their rows.
    log = table / "delta/data/_delta_log"
    newest = log / f"{len(list(log.iterdir())):020d}.json"
    shutil.copy(max(log.iterdir()), newest)
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "pipeline", "lake", "--compact", *as_sets(sets)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"{newest} is the version of a batch that is not there; restore it" in done.stderr


def records(first, count):
    """Return records of which each tenth is no row, and some bring a column."""
    found = numbered(first, count)
    for n in range(3, count, 10):
        found[n] = (b"bad", [b"no json", b'{"n": "x"}', b"\xff", b"", b"[1]"][n // 10 % 5])
    return found


@pytest.mark.alone
@pytest.mark.spark
@pytest.mark.timeout(1500)
def test_the_whole_job_for_every_reader(cluster, spark, produced, tmp_path):
    """Garbage, new columns, several batches, kills of the driver, compaction; then Spark, too."""
    pytest.importorskip("deltalake")
    produced.send(records(0, 500))
    sets = settings_of(
        produced.bootstrap, tmp_path, [produced.topic], lake__format="delta",
        lake__batch_records=200,
    )  # fmt: skip
    table = tmp_path / produced.topic
    for number, stage in enumerate(STAGES):
        wider = {"n": 9, "added": {"a": number}, f"odd name {number}": "x"}
        produced.send([*records(1000 * number, 100), (b"new", json.dumps(wider).encode())])
        arguments = ["--master", "local[2]", *as_sets(sets)]
        code, told = run_until(stage, next_batch(table), "--", arguments, 400)
        assert code == -signal.SIGKILL, (stage, told)
        seen_now(table, produced)
    done = run_here(spark, sets, "--verify")
    assert done.code == 0, done.told
    assert "0 problems" in done.told
    whole(table, produced)
    rows, dead = by_pyarrow(table / "data"), by_pyarrow(table / "dead")
    assert differences(rows, produced, dead) == []
    assert len(dead) > 50
    by_key = [r for r in by_delta_rs(table / "delta/data") if r["kafka_key"] == b"new"]
    assert sorted(r["added"]["a"] for r in by_key) == list(range(len(STAGES)))
    assert all(r[f"odd name {r['added']['a']}"] == "x" for r in by_key)
    newest = len(list((table / "delta/data/_delta_log").iterdir())) - 1
    compacted = run_here(None, sets, "--compact")
    assert compacted.code == 0, compacted.told
    whole(table, produced)
    assert places(by_delta_rs(table / "delta/data", newest)) == places(rows)  # the version before
    produced.send(records(9000, 100))
    done = run_here(spark, sets)
    assert done.code == 0, done.told
    whole(table, produced)
    again = run_here(spark, [*sets, 'lake.format="parquet"'])
    assert (again.code, again.told.count("\n")) == (1, 1)
    assert "begun with format delta, not parquet" in again.told

    jars = spark_jars()
    if isinstance(jars, str):
        pytest.skip(f"all but Spark with Delta: {jars}")
    told = by_spark_delta(jars, table / "delta/data", table / "delta/dead")
    assert told["rows"] == sorted([*p] for p in places(by_delta_rs(table / "delta/data")))
    assert told["dead"] == sorted([*p] for p in places(by_delta_rs(table / "delta/dead")))
    assert told["added"] == list(range(len(STAGES)))
    assert set(told["refused"]) == {"append", "delete", "optimize", "vacuum"}
    done = run_here(spark, sets)
    assert done.code == 0, done.told  # nothing that was refused has left a version


@pytest.mark.alone
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_what_is_planted_is_found_by_the_job_and_by_the_audit(cluster, spark, produced, tmp_path):
    from ottla.pipelines import audit, job

    produced.send(numbered(0, 400))
    sets = settings_of(
        produced.bootstrap, tmp_path, [produced.topic], lake__format="delta",
        lake__batch_records=100,
    )  # fmt: skip
    assert run_here(spark, sets).code == 0
    table = tmp_path / produced.topic
    log = table / "delta/data/_delta_log"

    def version_gone():
        (log / f"{1:020d}.json").unlink()
        return "00001.json is gone: its rows are missing"

    def added_twice():
        path = log / f"{2:020d}.json"
        path.write_text(path.read_text() + path.read_text().splitlines()[-1] + "\n")
        return "once more"

    def foreign():
        newest = max(log.iterdir())
        shutil.copy(newest, log / f"{int(newest.stem) + 1:020d}.json")
        return "is the version of a batch that is not there"

    def audited():
        options = read(audit.Options,
            ["--set", f"cluster.bootstrap_servers={json.dumps(produced.bootstrap)}",
             "--set", f"audit.topics={json.dumps([produced.topic])}",
             "--set", f"audit.lake={json.dumps(str(tmp_path))}"]
        )  # fmt: skip
        return job.run(audit.NAME, lambda: audit.run(options, spark))

    assert audited() == 0
    shutil.copytree(log, tmp_path / "kept")
    for plant in (version_gone, added_twice, foreign):
        says = plant()
        done = run_here(spark, sets, "--verify")
        assert (done.code, done.told.count("\n")) == (1, 1)
        assert says in done.told
        assert audited() == 1
        shutil.rmtree(log)
        shutil.copytree(tmp_path / "kept", log)
    version_gone()
    restored = run_here(spark, sets, "--restore", "--verify")
    assert restored.code == 0, restored.told
    assert audited() == 0
    if sys.modules.get("deltalake"):
        whole(table, produced)
