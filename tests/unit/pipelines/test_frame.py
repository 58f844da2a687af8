"""What all jobs share: listing, settings, precedence of Spark's settings, one line for failures."""

import json
import subprocess
import sys
from importlib import import_module

import msgspec
import pytest

from ottla.cli import grammar
from ottla.cli.table import load
from ottla.model.errors import ConfigError, OttlaError, StartupError
from ottla.pipelines import job, paths, session
from ottla.pipelines.config import Cluster, Spark, read_config
from ottla.pipelines.source.options import parse_options


class Inner(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    path: str
    size: int = 1


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    cluster: Cluster
    inner: Inner
    spark: Spark = Spark()


GOOD = '[cluster]\nbootstrap_servers = "h:1"\n[inner]\npath = "p"\n'


@pytest.fixture
def read(tmp_path):
    def read(text, *sets):
        path = tmp_path / "job.toml"
        path.write_text(text)
        return read_config(path, sets, Settings)

    return read


JOBS = {
    name: node for name, node in load()[0].children["pipeline"].children.items() if not node.instead
}


def test_each_listed_job_is_a_program():
    for name, node in JOBS.items():
        assert callable(grammar.imported(node.target)), name
        if name != "schema":
            assert callable(import_module(f"ottla.{node.target.partition(':')[0]}").main), name


def test_the_front_door_lists_the_jobs_and_imports_no_spark():
    code = (
        "import sys; sys.argv[1:] = {}; from ottla.__main__ import main; code = main();"
        "print([m for m in ('pyspark', 'py4j', 'asyncio') if m in sys.modules], code)"
    )

    def run(*arguments):
        line = code.format(list(arguments))
        return subprocess.run(
            [sys.executable, "-c", line], capture_output=True, text=True, check=True
        )

    assert "pipeline " in run("help").stdout
    listed = run("pipeline", "--help").stdout
    assert all(name in listed for name in JOBS)
    assert listed.endswith("[] 0\n")
    assert run("pipeline").stdout.endswith("[] 2\n")
    unknown = run("pipeline", "nosuch")
    assert unknown.stderr.startswith("ottla pipeline: there is no command pipeline nosuch")
    assert unknown.stdout == "[] 2\n"


def test_settings_of_a_file_and_over_it(read):
    found = read(GOOD, "inner.size=3", "inner.path=elsewhere", "cluster.options={'a.b' = 'c'}")
    assert (found.inner.size, found.inner.path) == (3, "elsewhere")
    assert read(GOOD + "size = 7", "inner.size=").inner.size == 1
    assert found.cluster.client_options() == {"a.b": "c"}


@pytest.mark.parametrize(
    ("text", "sets", "says"),
    [
        (GOOD + "sice = 1", (), "[inner]: there is no setting `sice`"),
        (GOOD + "size = 'big'", (), "[inner.size]: Expected `int`, got `str`"),
        ('[cluster]\nbootstrap_servers = "h:1"', (), "missing setting `inner`"),
        ("[cluster\n", (), "Expected ']'"),
        (GOOD, ("inner.size",), "--set inner.size: write table.key=value"),
        (GOOD, ("=3",), "--set =3: write table.key=value"),
        (GOOD, ("new.key=3",), "there is no setting `new`"),
    ],
)
def test_what_does_not_fit_is_one_line(read, text, sets, says):
    with pytest.raises(ConfigError) as caught:
        read(text, *sets)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"nosuch\.toml: No such file"):
        read_config(tmp_path / "nosuch.toml", (), Settings)


def test_client_settings_from_a_properties_file(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text("# for the tools\nsecurity.protocol = SASL_SSL\nsasl.jaas.config=a=b;\n")
    cluster = Cluster(
        bootstrap_servers="h:1", properties=str(path), options={"sasl.mechanism": "PLAIN"}
    )
    assert cluster.client_options() == {
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": "a=b;",
        "sasl.mechanism": "PLAIN",
    }
    # As Java reads it, and so Kafka's tools: continued lines, escapes, other separators.
    path.write_text(
        'sasl.jaas.config=Login required \\\n   user="u" ;\nssl.key : a\\\\b\\u00e9\n! no\nempty\n'
    )
    assert cluster.client_options() == {
        "sasl.jaas.config": 'Login required user="u" ;',
        "ssl.key": "a\\b\u00e9",
        "empty": "",
        "sasl.mechanism": "PLAIN",
    }
    path.write_bytes(b"a=\xff")
    assert cluster.client_options()["a"] == "\xff"
    path.write_bytes(b"a=\\uzzzz")
    with pytest.raises(ConfigError, match=r"client\.properties: "):
        cluster.client_options()


def settings(wanted=None, file=None, submitted=None, defaults=None):
    return session.settings_of(
        "name", wanted or session.Wanted(), file or Spark(), submitted or {}, defaults or {}
    )


def test_what_our_own_client_takes_of_a_clusters_settings(tmp_path):
    (tmp_path / "client.properties").write_text("request.timeout.ms=7\nssl.x=y\n")
    cluster = Cluster(
        bootstrap_servers="h:1",
        properties=str(tmp_path / "client.properties"),
        options={"default.api.timeout.ms": "9", "client.id": "me"},
    )
    assert cluster.source_options() == {
        "kafka.bootstrap.servers": "h:1",
        "kafka.request.timeout.ms": "7",
        "kafka.default.api.timeout.ms": "9",
        "kafka.client.id": "me",
        "properties": str(tmp_path / "client.properties"),
    }
    found = parse_options({**cluster.source_options(), "subscribe": "t"})
    assert (found.request_timeout_ms, found.api_timeout_ms, found.client_id) == (7, 9, "me")


def test_outputs_can_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "new", tmp_path / "a/b/new"):
        paths.refuse_unwritable(path, "--output")
    with pytest.raises(ConfigError, match="file is no folder"):
        paths.refuse_unwritable(tmp_path / "file/new", "--output")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    monkeypatch.setattr(paths.os, "access", lambda path, _: path != tmp_path)  # root may do all
    with pytest.raises(ConfigError, match="nothing may be written into"):
        paths.refuse_unwritable(tmp_path / "new", "--output")


def test_what_a_file_system_says_is_told_with_the_place():
    full = OSError(28, "Error writing bytes to file. Detail: [errno 28] No space left on device")
    assert paths.of_disk(full, "/lake") == "/lake: No space left on device"
    assert job.in_one_line(full) == "No space left on device"
    assert paths.of_disk(OSError(28, "No space left on device", "/lake/file"), "/lake") == (
        "/lake/file: No space left on device"
    )
    assert paths.of_disk(OSError("odd"), "/lake") == "/lake: odd"


def test_a_java_that_spark_cannot_use(tmp_path):
    with pytest.raises(StartupError, match=f"JAVA_HOME={tmp_path} has no bin/java"):
        session._refuse_bad_java(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch(0o755)
    session._refuse_bad_java(tmp_path)  # says nothing of its version
    for version, old in (("1.8.0_392", True), ("11.0.21", True), ("17.0.15", False), ("25", False)):
        (tmp_path / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
        if not old:
            session._refuse_bad_java(tmp_path)
            continue
        with pytest.raises(StartupError, match=f"is Java {version}, Spark needs 17 or newer"):
            session._refuse_bad_java(tmp_path)


def test_what_the_user_set_is_never_overridden():
    wanted = session.Wanted("spark://a:1", {"x": "command"})
    file = Spark(master="spark://b:1", conf={"x": "file", "y": "file", "z": "file"})
    submitted = {"spark.master": "spark://c:1", "x": "submit", "y": "submit"}
    defaults = dict.fromkeys(["spark.master", "x", "y", "z", "spark.ui.enabled"], "defaults")
    found = settings(wanted, file, submitted, defaults)
    assert [found[k] for k in ("spark.master", "x", "y", "z", "spark.ui.enabled")] == [
        "spark://a:1", "command", "submit", "file", "defaults"
    ]  # fmt: skip
    assert settings(None, file, submitted, defaults)["spark.master"] == "spark://c:1"
    assert settings(None, file, None, defaults)["spark.master"] == "spark://b:1"


def test_only_a_local_master_is_tied_to_this_machine():
    assert settings()["spark.master"] == "local[*]"
    assert settings()["spark.driver.host"] == "127.0.0.1"
    away = settings(session.Wanted("spark://a:1"))
    assert not [k for k in away if k.startswith("spark.driver.")]
    assert "spark.sql.shuffle.partitions" not in away


def test_what_suits_a_job_is_a_default_and_only_of_a_local_master():
    work = session.Work(quick_java=True, modules=("a", "b"))
    java, modules = "spark.driver.extraJavaOptions", "spark.executorEnv.OTTLA_WORKER_MODULES"

    def found(**defaults):
        return session.settings_of("name", session.Wanted(), Spark(), {}, defaults, work)

    assert found()[java] == session.QUICK_JAVA
    assert (found()["spark.python.daemon.module"], found()[modules]) == (session.DAEMON, "a,b")
    assert found(**{java: "-Xss4m"})[java] == "-Xss4m"
    away = found(**{"spark.master": "spark://a:1"})
    assert not {java, modules, "spark.python.daemon.module"} & away.keys()
    assert java not in settings()


@pytest.mark.parametrize(
    ("master", "cores"), [("local", 1), ("local[3]", 3), ("local-cluster[2,1,1024]", 2)]
)
def test_local_masters(master, cores):
    assert session.is_local(master)
    assert session.local_cores(master) == cores
    assert settings(session.Wanted(master))["spark.sql.shuffle.partitions"] == str(2 * cores)


def test_what_stands_in_submit_arguments_and_in_the_defaults_file(tmp_path, monkeypatch):
    assert session.parse_submit_arguments(
        "--master local[7] --conf a=b=c -c 'd=e f' --jars x.jar --verbose pyspark-shell"
    ) == {"spark.master": "local[7]", "spark.jars": "x.jar", "a": "b=c", "d": "e f"}
    (tmp_path / "spark-defaults.conf").write_text("# c\nspark.master  local[5]\na=b c\n\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert session.defaults_file() == {"spark.master": "local[5]", "a": "b c"}


def test_a_failure_is_one_line_and_its_exit_code(capsys):
    def fail(error):
        def work():
            raise error

        return job.run("x", work)

    assert fail(OttlaError("the disk is full")) == 1
    assert capsys.readouterr().err == "pipeline x: the disk is full\n"
    nested = "[STREAM_FAILED] q\n\tat a.b\nCaused by: A: first\n\tat c\nCaused by: B: the cause\n"
    assert fail(ValueError(nested)) == 1
    assert capsys.readouterr().err == "pipeline x: ValueError: B: the cause\n"
    trace = "P: Traceback (most recent call last):\n  File 'a', line 1, in f\n    raise X\n{}\n\n"
    of_a_task = (
        f"An error occurred while calling o1.x.\n: S: {trace}\tat o.a\nCaused by: {trace}\tat b\n"
    )
    ours = "ottla.model.errors.OffsetOutOfRangeError: t-0: offset 3 is gone (option x)"
    assert fail(ValueError(of_a_task.format(ours, ours))) == 1
    assert capsys.readouterr().err == "pipeline x: t-0: offset 3 is gone (option x)\n"
    assert fail(ValueError(of_a_task.format("M: a\n", "MemoryError: b"))) == 1
    assert capsys.readouterr().err == "pipeline x: MemoryError: b\n"
    assert fail(FileNotFoundError(2, "No such file", "f")) == 1
    assert capsys.readouterr().err == "pipeline x: f: No such file\n"
    assert fail(KeyboardInterrupt()) == 130
    assert job.run("x", lambda: 0) == 0


def test_conf_options():
    options = grammar.read(job.Options, ["--conf", "a=b=c", "--master", "local[1]"])
    assert job.wanted_of(options) == session.Wanted("local[1]", {"a": "b=c"})
    with pytest.raises(OttlaError, match="--conf nothing: write KEY=VALUE"):
        job.wanted_of(grammar.read(job.Options, ["--conf", "nothing"]))


def test_lines_end_in_silence_where_their_reader_does():
    code = (
        "from ottla.pipelines import job\n"
        "job.print_lines(f'{n}\\n' for n in range(200_000))\n"
        "import sys; sys.exit(7)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout.readline() == b"0\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(30) == 7


def test_the_schema_of_a_jobs_result(capsys):
    assert grammar.run(["pipeline", "schema", "lake"]) == 0
    assert "anyOf" in json.loads(capsys.readouterr().out)
    for names in ([], ["nosuch"], ["lake", "replay"]):
        assert grammar.run(["pipeline", "schema", *names]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
