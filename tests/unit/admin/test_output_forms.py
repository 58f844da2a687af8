"""JSON and tabs: one content, whatever is in it; each command has its schema and its page."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.cli.grammar import main
from ottla.cli.output import readable_json
from ottla.cli.table import load
from ottla.client import client
from ottla.pipelines.result_schemas import RESULTS
from support.commands import every_command
from support.schemas import SCHEMAS, problems

DOCS = Path(__file__).parents[3] / "docs"


COMMANDS = every_command()
WITHOUT_OUTPUT = {"demo", "completion", "schema", "schema-registry", "history merge"} | {"console"}


def test_every_command_has_an_output_and_a_schema():
    with_output = {n for n, c in COMMANDS.items() if any(p.name == "output" for p in c.known)}
    assert set(COMMANDS) - with_output == WITHOUT_OUTPUT
    assert set(SCHEMAS) == with_output


def test_every_job_that_prints_json_has_a_schema():
    assert set(RESULTS) == {
        name
        for name, child in load()[0].children["pipeline"].children.items()
        if not child.instead and name not in ("init", "schema")
    }


def test_the_page_of_outputs_is_the_schemas():
    spec = importlib.util.spec_from_file_location("list_outputs", DOCS / "list_outputs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), "python docs/list_outputs.py"


def undescribed(schema, place):
    """Yield where a schema lets anything through."""
    if not schema or (schema.get("type") == "object" and "additionalProperties" not in schema):
        yield place
    for name, inner in schema.get("properties", {}).items():
        yield from undescribed(inner, f"{place}.{name}")
    for inner in (*schema.get("anyOf", ()), *(schema[k] for k in ("items",) if k in schema)):
        yield from undescribed(inner, place)
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        yield from undescribed(extra, f"{place}.NAME")


def test_schemas_describe_all_that_is_ours():
    all_schemas = {**SCHEMAS, **RESULTS}
    found = {place for name, schema in all_schemas.items() for place in undescribed(schema, name)}
    kafkas = {"znode get.data", "znode ls.data", "dump-log.decoded.key", "dump-log.decoded.value"}
    assert found == kafkas | {"lake.query"}


def named(schema):
    """Yield the fields of a schema and of all that is in it."""
    for name, inner in schema.get("properties", {}).items():
        yield name, inner
        yield from named(inner)
    extra = schema.get("additionalProperties")
    for inner in (*schema.get("anyOf", ()), schema.get("items"), extra):
        if isinstance(inner, dict):
            yield from named(inner)


def test_all_commands_use_the_same_names():
    fields = {name: [*named(schema)] for name, schema in SCHEMAS.items()}
    # A scenario is as in its file, which has the names of the options.
    fields["sim check"] = [(n, f) for n, f in fields["sim check"] if "-" not in n]
    of_past = ("why", "history replay", "history timeline")
    for command, found in fields.items():
        for name, schema in found:
            assert re.fullmatch("[a-z][a-z0-9_]*", name), (command, name)
            assert name not in {"ts", "time", "id", "until"}, (command, name)
            if name in ("problem", "controller") and command not in of_past:
                assert {"type": "null"} in schema.get("anyOf", ()) or schema["type"] == "boolean"
            if name in ("partition", "broker"):
                assert schema == {"type": "integer"}, (command, name)
            if name.endswith("_ms"):
                forms = [form["type"] for form in schema.get("anyOf", [schema])]
                assert {*forms} <= {"integer", "number", "null"}, (command, name)


def test_the_checker_of_schemas_sees_what_is_wrong():
    schema = SCHEMAS["topics create"]
    assert problems([{"topic": "t", "result": "created"}], schema) == []
    assert problems({"topic": "t", "result": "created"}, schema)
    assert problems([{"topic": "t"}], schema)
    assert problems([{"topic": "t", "result": 1}], schema)
    assert problems([{"topic": "t", "result": "x", "more": 1}], schema)
    assert problems([{"broker": True, "result": "x"}], SCHEMAS["broker stop"])
    logs, entry = SCHEMAS["dump-log"], {"file": "f", "kind": "leader_epoch", "epoch": 1}
    assert problems([{**entry, "start_offset": 0}], logs) == []
    assert problems([entry], logs)
    assert problems([{**entry, "start_offset": 0, "kind": "index"}], logs)


NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
LIKE_OTHERS = ["yes", "1", "1e3", "a: b", "- x", "#", "", " a", "0x1", "~"]
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=8) | st.sampled_from(LIKE_OTHERS)
PLAIN = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(PLAIN)
@example("[\n  1,\n  2\n]")
def test_readable_json_is_the_same_json(value):
    assert json.loads(readable_json(value)) == value


def test_lists_of_numbers_stand_on_one_line():
    text = readable_json({"replicas": [[0, 1, 2], [-1]], "names": ["a", 1], "none": []})
    assert "\n    [0, 1, 2],\n    [-1]\n" in text
    assert '"names": [\n    "a",\n    1\n  ]' in text


@pytest.fixture
def profiles(tmp_path, monkeypatch):
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "config" / "config.toml"))
    for name in ("OTTLA_BOOTSTRAP_SERVERS", "OTTLA_PROFILE", "OTTLA_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(client, "FIRST_WAIT_S", 0.001)
    return tmp_path


def run(capsys, *arguments):
    code = main([*map(str, arguments)])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_profiles(profiles, capsys):
    assert run(capsys, "profile", "list", "--output", "json")[1] == "[]\n"
    assert run(capsys, "profile", "set", "a", "-b", "h:1,[::1]:2")[0] == 0
    assert run(capsys, "profile", "set", "b", "--dir", profiles, "--use")[0] == 0
    _, out, _ = run(capsys, "profile", "list", "--output", "json")
    listed = json.loads(out)
    assert problems(listed, SCHEMAS["profile list"]) == []
    assert [(p["profile"], p["in_use"], p["bootstrap_servers"], p["dir"]) for p in listed] == [
        ("a", False, "h:1,[::1]:2", None), ("b", True, None, str(profiles)),
    ]  # fmt: skip
    shown = json.loads(run(capsys, "profile", "show", "--output", "json")[1])
    assert shown == {"cluster": str(profiles), "command_config": None}
    assert run(capsys, "profile", "use", "a")[0] == 0
    assert run(capsys, "profile", "show", "--output", "tsv")[1].splitlines()[1] == "h:1,[::1]:2\t-"
    assert run(capsys, "profile", "remove", "a")[0] == 0
    assert run(capsys, "profile", "use", "a")[0] == 1
    code, _, err = run(capsys, "profile", "set", "a b", "-b", "h:1")
    assert (code, "'a b': use letters" in err) == (2, True)
    code, _, err = run(capsys, "profile", "set", "c", "-b", "nonsense")
    assert (code, "is not an address" in err) == (2, True)
    assert "say where" in run(capsys, "profile", "set", "c")[2]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("current = ", "config.toml: "),
        ('current = "x"', "no such profile"),
        ("other = 1", "no key other"),
        ("[profiles.a]\nport = 1", "profile a: port"),
        ("[profiles.a]\ndir = 1", "profile a: dir"),
        ('[profiles.a]\ndir = "x"\nbootstrap-servers = "y"', "one of both"),
        ("profiles = 1", "[profiles.NAME]"),
    ],
)
def test_a_file_of_profiles_that_is_wrong(profiles, capsys, text, says):
    file = profiles / "config" / "config.toml"
    file.parent.mkdir()
    file.write_text(text)
    code, _, err = run(capsys, "topics", "list")
    assert code == 1
    assert says in err
    assert err.count("\n") == 1


def asked(capsys, *arguments):
    """Return which address a command tried to reach."""
    code, _, err = run(capsys, "topics", "list", *arguments)
    assert code == 1
    return err


def test_which_cluster_is_meant(profiles, capsys, monkeypatch):
    run(capsys, "profile", "set", "inuse", "-b", "127.0.0.1:11", "--use")
    run(capsys, "profile", "set", "other", "-b", "127.0.0.1:12")
    config = profiles / "client.properties"
    config.write_text("bootstrap.servers=127.0.0.1:13\nclient.id=me\nrequest.timeout.ms=2000\n")
    assert "127.0.0.1:11" in asked(capsys)
    monkeypatch.setenv("OTTLA_PROFILE", "other")
    assert "127.0.0.1:12" in asked(capsys)
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", "127.0.0.1:14")
    assert "127.0.0.1:14" in asked(capsys)
    assert "127.0.0.1:13" in asked(capsys, "--command-config", config)
    assert "127.0.0.1:11" in asked(capsys, "--profile", "inuse")
    assert "127.0.0.1:11" in asked(capsys, "--profile", "inuse", "--command-config", config)
    assert "no cluster" in asked(capsys, "--dir", profiles / "nosuch")
    assert "127.0.0.1:15" in asked(capsys, "-b", "127.0.0.1:15", "--profile", "inuse")
    assert "there is no profile nosuch" in asked(capsys, "--profile", "nosuch")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=GSSAPI (Kerberos) is not served"),
        ("security.protocol=TLS", "security.protocol=TLS"),
        ("request.timeout.ms=soon", "request.timeout.ms=soon"),
    ],
)
def test_client_settings_that_nobody_does_are_refused(profiles, capsys, text, says):
    config = profiles / "client.properties"
    config.write_text(text)
    assert says in asked(capsys, "-b", "127.0.0.1:11", "--command-config", config)
    assert "nosuch" in asked(capsys, "-b", "127.0.0.1:11", "--command-config", profiles / "nosuch")


def test_quiet_and_verbose(profiles, capsys):
    assert run(capsys, "profile", "set", "a", "-b", "h:1", "-q")[2] == ""
    assert "there is no profile" in run(capsys, "profile", "use", "b", "--quiet")[2]
    told = run(capsys, "topics", "list", "-b", "127.0.0.1:1", "-v")[2]
    assert "MetadataRequest to any broker: " in told


def test_schema(capsys):
    code, out, _ = run(capsys, "schema", "topics", "list")
    assert code == 0
    assert json.loads(out) == SCHEMAS["topics list"]
    assert run(capsys, "schema", "nosuch")[0] == 2


def test_help_of_a_command_knows_the_options_of_the_connection(capsys):
    out = run(capsys, "topics", "list", "--help")[1]
    assert "--profile NAME" in out
    assert "--command-config FILE" in out
    assert "--profile" not in run(capsys, "dump-log", "--help")[1]
    assert sys.stdout is not None
