"""The examples in Python of docs/PIPELINES.md, run as they stand but for addresses and folders.

Truth: the producer's acknowledgements.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from support.cluster import OttlaCluster
from support.landed import Produced, by_library, numbered, run_here, settings_of
from support.streams import run_to_its_end

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.spark, pytest.mark.timeout(300)]
PAGE = (Path(__file__).parents[2] / "docs/PIPELINES.md").read_text(encoding="utf-8")
CODE = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def example(sign, **replaced):
    """Return the only example with a text, with texts of it replaced; each must be there."""
    (code,) = [c for c in CODE if sign in c]
    for old, new in replaced.values():
        assert old in code, old
        code = code.replace(old, str(new))
    return code


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with OttlaCluster(tmp_path_factory.mktemp("cluster"), brokers=3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def produced(cluster):
    """Make the topic `flights` of the examples."""
    command = [sys.executable, "-m", "ottla", "topics", "create", "flights", "--partitions", "2",
               "--replication-factor", "3", "--bootstrap-server", cluster.bootstrap]  # fmt: skip
    subprocess.run(command, check=True, timeout=60)
    return Produced(cluster.bootstrap, "flights").send(numbered(0, 400), **{"batch.size": 2000})


def test_from_a_row_of_the_lake_to_its_segment(cluster, spark, produced, tmp_path):
    done = run_here(spark, settings_of(cluster.bootstrap, tmp_path, ["flights"],
                                       lake__batch_records=150))  # fmt: skip
    assert done.code == 0, done.told
    data = tmp_path / "flights" / "data"
    row = max((r for r in by_library(data) if r["kafka_partition"] == 1),
              key=lambda r: r["kafka_offset"])  # fmt: skip
    offset = row["kafka_offset"]
    line = next(x for x in PAGE.splitlines() if x.startswith("ottla dump-log /data/broker-0"))
    words = line.partition("|")[0].split()[1:]
    key, value, _ = produced.acked[1, offset]
    for broker in cluster.ids:
        words[1] = str(cluster.data(broker) / "flights-1")
        done = subprocess.run(
            [sys.executable, "-m", "ottla", *words],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        (found,) = [x for x in done.stdout.splitlines() if re.search(rf"\boffset={offset}\b", x)]
        assert f"\tkey_size={len(key)}\tvalue_size={len(value)}\t" in found
    assert row["kafka_leader_epoch"] >= 0


def test_a_topic_in_a_batch_and_in_a_stream(cluster, spark, produced, tmp_path):
    code = example(
        'spark.readStream.format("ottla")',
        address=("127.0.0.1:9092", cluster.bootstrap),
        batch=('"subscribe", "orders"', '"subscribe", "flights"'),
        stream=('subscribe="orders"', 'subscribe="flights"'),
        folders=("/lake/", f"{tmp_path}/"),
    )
    there = {"spark": spark}

    def start():
        exec(code, there)
        return there["query"]

    run_to_its_end(start, 120)
    truth = {place: key for place, (key, _, _) in produced.acked.items()}
    for rows in (there["orders"], spark.read.parquet(str(tmp_path / "orders"))):
        got = [((r["partition"], r["offset"]), bytes(r["key"])) for r in rows.collect()]
        assert len(got) == len(truth)
        assert dict(got) == truth
