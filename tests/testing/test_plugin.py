"""The plugin of pytest, in projects that have nothing else."""

import re
import shlex
import shutil
import subprocess
import textwrap
from importlib.metadata import entry_points

import pytest

pytest_plugins = ["pytester"]

INSTALLED = bool(entry_points(group="pytest11", name="ottla"))
"""Then pytest loads it by itself, and -p may not load it again."""


@pytest.fixture
def project(pytester, monkeypatch):
    """A project that is empty but for the tests given; returns what runs them."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def run(text, *arguments, timeout_s=100):
        pytester.makepyfile(textwrap.dedent(text))
        plugin = [] if INSTALLED else ["-p", "ottla.testing.plugin"]
        return pytester.runpytest_subprocess(
            *plugin, "-p", "no:cacheprovider", "--strict-markers", *arguments, timeout=timeout_s
        )

    return run


PRODUCE = """
    import pytest
    from confluent_kafka import Producer

    def produce(bootstrap, topic, values):
        done = []
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        for value in values:
            producer.produce(topic, value, key="k", on_delivery=lambda e, m: done.append((e, m)))
        assert producer.flush(20) == 0
        assert not [error for error, _ in done if error]
        return [message for _, message in done]
"""


def test_a_fixture_is_a_cluster(project):
    result = project(
        PRODUCE
        + """
    @pytest.mark.ottla(brokers=1, in_process=True)
    def test_produce(ottla_cluster, kafka_bootstrap):
        ottla_cluster.create_topic("orders")
        (message,) = produce(kafka_bootstrap, "orders", ["one"])
        assert message.offset() == 0
    """
    )
    result.assert_outcomes(passed=1)


def test_scopes_share_or_do_not(project):
    result = project(
        """
    import pytest

    seen = {}
    pytestmark = pytest.mark.ottla(brokers=1, in_process=True)

    @pytest.mark.parametrize("n", [1, 2])
    def test_session(ottla_cluster, n):
        assert seen.setdefault("session", ottla_cluster) is ottla_cluster
        assert ottla_cluster.running(1), "it was not started again"
        assert ottla_cluster.partitions() == [], "topics of another test are there"
        ottla_cluster.create_topic("orders", partitions=3)
        ottla_cluster.create_topic("orders-of-today")
        ottla_cluster.kill(1)

    @pytest.mark.parametrize("n", [1, 2])
    @pytest.mark.ottla(brokers=1, in_process=True, scope="function")
    def test_function(ottla_cluster, n):
        assert ottla_cluster not in seen.values()
        seen[f"function-{n}"] = ottla_cluster

    @pytest.mark.ottla(brokers=2, in_process=True, settings={"num.partitions": 7})
    def test_other_arguments(ottla_cluster):
        assert ottla_cluster not in seen.values()
        assert ottla_cluster.broker_ids == [1, 2]

    @pytest.fixture(scope="session")
    def application(ottla_cluster_session):
        return ottla_cluster_session

    def test_fixtures_of_a_session(application, ottla_cluster_module):
        assert application is not ottla_cluster_module
        assert len(application.broker_ids) == 1

    def test_function_clusters_are_over():
        from ottla.model.errors import OttlaError
        with pytest.raises(OttlaError, match="does not run"):
            seen["function-1"].heal()
    """,
        "--ottla-brokers=1",
        "--ottla-in-process",
    )
    result.assert_outcomes(passed=7)


def test_a_module_has_a_cluster_of_its_own(project, pytester):
    """Its tests share it; the tests of the next module have another, and the first is over."""
    pytester.makeconftest("clusters = []")
    module = """
    import pytest
    from conftest import clusters
    from ottla.model.errors import OttlaError

    pytestmark = pytest.mark.ottla(brokers=1, in_process=True, scope="module")
    before = []

    @pytest.fixture(scope="module", autouse=True)
    def earlier():
        before.extend(clusters)

    @pytest.mark.parametrize("n", [1, 2])
    def test_shared(ottla_cluster, n):
        assert ottla_cluster not in before
        assert ottla_cluster.partitions() == [], "topics of another test are there"
        ottla_cluster.create_topic("orders")
        clusters.append(ottla_cluster)

    def test_it_was_one():
        one, same = clusters[len(before):]
        assert one is same
        assert one.running(1)
        for other in before:
            with pytest.raises(OttlaError, match="does not run"):
                other.heal()
    """
    pytester.makepyfile(test_another=textwrap.dedent(module))
    project(module).assert_outcomes(passed=6)


def test_the_report_of_a_failure_tells_what_happened(project):
    result = project(
        PRODUCE
        + """
    @pytest.mark.ottla(brokers=3, in_process=True)
    def test_lost(ottla_cluster, chaos):
        ottla_cluster.create_topic("orders")
        for message in produce(ottla_cluster.bootstrap, "orders", ["a", "b", "c"]):
            chaos.acknowledged("orders", message.key(), message.value(), 0, message.offset())
        chaos.once("kill_leader", "orders-0", longest_s=0.1)
        assert chaos.check().found == 3
        chaos.acknowledged("orders", "k", "never written", 0, 99)
        chaos.check()
    """,
        "--ottla-seed=4711",
    )
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert "4 records acknowledged, 3 found" in text
    assert "lost: 1" in text
    assert "orders-0@99 key=b'k' value=b'never written'" in text
    assert re.search(
        r"again with: pytest --ottla-seed 4711 "
        r"test_the_report_of_a_failure_tells_what_happened.py::test_lost$", text, re.MULTILINE,
    )  # fmt: skip
    assert "faults: kill_leader 1" in text
    assert re.search(r"\d\.\d{3} s  nemesis kill_leader", text)
    assert re.search(r"\d\.\d{3} s  killed broker \d", text)
    assert re.search(r"orders-0  now: leader \d epoch [12] ", text)
    logged = text.partition("orders-0  now:")[2]
    assert " INFO ottla" not in logged
    folder = re.search(r"/tmp/ottla-\w+", text)
    assert not folder, "a folder that is gone is named"
    assert "sync_cluster.py" not in text, "the traceback shows the product's frames"
    assert "Captured log" not in text, "what brokers log is in the report twice"


def test_a_failure_without_a_fault_says_one_line_of_the_cluster(project):
    result = project(
        """
    import pytest

    @pytest.mark.ottla(brokers=3, in_process=True)
    def test_something_else(ottla_cluster):
        ottla_cluster.create_topic("orders")
        assert 1 == 2
    """
    )
    result.assert_outcomes(failed=1)
    _, _, section = result.stdout.str().partition("ottla: cluster ---")
    assert section.splitlines()[1] == "nothing was done to it, and no broker logged a warning"
    assert len(section.splitlines()) < 6, section
    assert "ottla" not in section.splitlines()[2]


def test_the_product_s_frames_are_hidden(project):
    result = project(
        """
    import asyncio
    import pytest

    pytestmark = pytest.mark.ottla(brokers=1, in_process=True)

    def test_unknown_broker(ottla_cluster):
        ottla_cluster.kill(7)

    def test_unknown_partition(ottla_cluster):
        ottla_cluster.isr_of("orders-0")

    def test_no_leader(ottla_cluster):
        ottla_cluster.leader_of("orders-0")

    def test_check(chaos):
        chaos.acknowledged("orders", "k", "v")
        chaos.cluster.restart(1)
        chaos.check()

    def test_async(ottla_cluster_async):
        asyncio.run(ottla_cluster_async.leader_of("orders-0"))
    """
    )
    result.assert_outcomes(failed=5)
    text = result.stdout.str()
    frames = set(re.findall(r"^(\S+\.py):\d+: ", text, re.MULTILINE))
    ours = {name for name in frames if "ottla/testing" in name}
    assert not ours, text
    # Only the tracebacks' own lines: where CI is set, pytest repeats messages in full at the end.
    refused = r"^E +\S+RefusedError: topic orders does not exist; there are no topics$"
    assert len(re.findall(refused, text, re.MULTILINE)) == 2


def test_a_test_that_does_not_check_fails(project):
    result = project(
        """
    import pytest

    pytestmark = pytest.mark.ottla(brokers=1, in_process=True)

    def test_forgets(chaos):
        chaos.acknowledged("orders", "k", "v")
        chaos.once("kill_any", longest_s=0.1)

    def test_fails_anyway(chaos):
        chaos.acknowledged("orders", "k", "v")
        assert False

    def test_uses_no_checker(chaos):
        chaos.once("kill_any", longest_s=0.1)
    """
    )
    result.assert_outcomes(passed=2, failed=1, errors=1)
    assert "1 acknowledged records were not compared: call chaos.check()" in result.stdout.str()


SEEDS = """
    import pytest

    pytestmark = pytest.mark.ottla(brokers=1, in_process=True)

    @pytest.mark.parametrize("n", ["a", "b", "c", "d"])
    def test_seed(chaos, n, request):
        with open({file!r}, "a") as file:
            file.write(f"{{n}} {{chaos.seed}}\\n")
        if n == "c":
            assert False
"""


@pytest.mark.processes
@pytest.mark.timeout(400)
def test_every_test_has_its_own_seed(project, pytester):
    """The same in each order and in workers; the command of the report gives it again."""

    def seeds(*arguments):
        file = pytester.path / "seeds.txt"
        file.unlink(missing_ok=True)
        result = project(SEEDS.format(file=str(file)), *arguments)
        found = dict(line.split() for line in file.read_text().splitlines())
        return found, result.stdout.str()

    alone, text = seeds()
    assert len(set(alone.values())) == 4
    command = re.search(r"again with: pytest (--ottla-seed \d+ '.*')$", text, re.MULTILINE)[1]
    _, seed, test = shlex.split(command)
    assert test.endswith("::test_seed[c]")
    again, _ = seeds("--ottla-seed", seed, test)
    assert again == {"c": alone["c"]}
    assert seeds("--ottla-seed", seed, "-n2", "--dist", "loadgroup")[0] == alone
    in_workers, text = seeds("-n2")
    assert in_workers != alone
    seed = re.search(r"again with: pytest --ottla-seed (\d+) ", text)[1]
    assert seeds("-o", f"ottla_seed={seed}")[0] == in_workers, "workers had seeds of their own"


def test_options_are_ini_options_too(project, pytester):
    pytester.makeini("[pytest]\nottla_brokers = 2\nottla_in_process = true\nottla_keep = true\n")
    text = """
    def test_it(ottla_cluster):
        assert ottla_cluster.in_process
        assert len(ottla_cluster.broker_ids) == COUNT
    """
    for count, arguments in ((2, ()), (1, ("--ottla-brokers=1",))):
        result = project(text.replace("COUNT", str(count)), *arguments)
        result.assert_outcomes(passed=1)
        shutil.rmtree(re.search(r"ottla: kept (\S+)", result.stdout.str())[1])
    result = project(text, "-o", "ottla_brokers=many")
    assert "ottla: brokers is not an integer: 'many'" in result.stderr.str()


@pytest.mark.processes  # half a minute, where nothing else runs
@pytest.mark.timeout(400)
def test_chaos_while_an_application_works(project):
    result = project(
        """
    import time
    import pytest
    from confluent_kafka import Producer

    @pytest.mark.ottla(brokers=3, in_process=True, session_timeout_ms=1500)
    @pytest.mark.parametrize("nemesis", [
        "kill_leader", "kill_controller", "kill_any", "pause_leader", "partition_leader",
        "rolling_restart", "slow_broker", "disk_full", "kill_isolated_leader", "lose_responses",
    ])
    def test_nothing_is_lost(ottla_cluster, chaos, nemesis):
        topic = nemesis.replace("_", "-")
        ottla_cluster.create_topic(topic, partitions=3)
        producer = Producer({
            "bootstrap.servers": ottla_cluster.bootstrap, "acks": "all",
            "enable.idempotence": True, "socket.timeout.ms": 2000,
            "reconnect.backoff.max.ms": 200,
        })

        def delivered(error, message):
            assert error is None, error
            chaos.acknowledged(
                topic, message.key(), message.value(), message.partition(), message.offset()
            )

        until = time.monotonic() + 2.5
        n = 0
        with chaos.during(nemesis, pause_s=(0.1, 0.3), longest_s=0.5):
            while chaos.pending or time.monotonic() < until:
                producer.produce(topic, str(n), key=str(n % 7), on_delivery=delivered)
                producer.poll(0.001)
                n += 1
            assert producer.flush(30) == 0
        checked = chaos.check()
        assert checked.faults[nemesis] >= 1
        assert checked.acknowledged == n
        assert checked.found == n
    """,
        timeout_s=380,
    )
    result.assert_outcomes(passed=10)


def test_mistakes_are_clear(project):
    result = project(
        """
    import pytest

    @pytest.mark.ottla(scope="class")
    def test_scope(ottla_cluster): ...

    @pytest.mark.ottla(3)
    def test_argument(ottla_cluster): ...

    @pytest.mark.ottla(broker=1)
    def test_name(ottla_cluster): ...

    @pytest.mark.ottla(brokers=1, in_process=True, settings={"log.dir.s": 1})
    def test_setting(ottla_cluster): ...

    @pytest.mark.ottla(brokers=1, in_process=True)
    def test_nemesis(chaos):
        chaos.once("kill_everything")

    @pytest.mark.ottla(brokers=1, in_process=True)
    def test_nothing_acknowledged(chaos):
        chaos.check()
    """
    )
    result.assert_outcomes(errors=4, failed=2)
    text = result.stdout.str()
    assert "it has no argument broker, but brokers, in_process, settings, " in text
    assert "scope='class' is none of function, module, session" in text
    assert "name its arguments, as in brokers=3" in text
    assert "no broker setting of that name; did you mean log.dirs" in text
    assert "no nemesis kill_everything; there are kill_leader, " in text
    assert "nothing was acknowledged" in text


def test_a_kept_folder_is_named(project):
    result = project(
        """
    import pytest

    @pytest.mark.ottla(brokers=1, in_process=True)
    def test_it(ottla_cluster):
        ottla_cluster.create_topic("orders")
    """,
        "--ottla-keep",
    )
    result.assert_outcomes(passed=1)
    folder = re.search(r"ottla: kept (\S+)", result.stdout.str())[1]
    assert subprocess.run(["ls", f"{folder}/broker-1/data/orders-0"], check=True)
    shutil.rmtree(folder)


def test_whoever_does_not_use_it_imports_nothing(project):
    result = project(
        """
    import sys

    def test_it():
        loaded = {m for m in sys.modules if m.startswith("ottla")}
        assert loaded <= {"ottla", "ottla.testing", "ottla.testing.plugin"}
    """
    )
    result.assert_outcomes(passed=1)


@pytest.mark.processes
def test_two_workers_at_once(project):
    result = project(
        """
    import pytest

    @pytest.mark.ottla(brokers=2)
    @pytest.mark.parametrize("n", range(4))
    def test_it(ottla_cluster, n):
        ottla_cluster.create_topic(f"orders-{n}")
        ottla_cluster.kill(1)
    """,
        "-n2",
    )
    result.assert_outcomes(passed=4)
