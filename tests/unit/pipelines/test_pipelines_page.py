"""docs/PIPELINES.md beside the code: settings with their defaults, options, every example.

Settings come from the structs that files are checked against, options from the jobs' own parsers.
"""

import ast
import re
import shlex
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

pytest.importorskip("pyarrow")


from ottla.cli import grammar
from ottla.cli.declaring import parameters
from ottla.cli.table import load
from ottla.pipelines.config import Cluster, Spark
from ottla.pipelines.lake.settings import Settings as LakeSettings
from ottla.pipelines.replaying.settings import Settings as ReplaySettings

PAGE = (Path(__file__).parents[3] / "docs/PIPELINES.md").read_text(encoding="utf-8")
SECTIONS = {"lake": "## lake:", "replay": "## replay and mirror:"}
FILES = {"lake": LakeSettings, "replay": ReplaySettings}
JOBS = {
    name: child
    for name, child in load()[0].children["pipeline"].children.items()
    if name != "schema" and not child.instead
}
SHARED = {"cluster", "spark", "source", "target", "topic", "catalog"}
"""Tables that all jobs have (the section "Settings" is about them), or whose names are data."""


def section(begins):
    (found,) = [s for s in re.split(r"^(?=## )", PAGE, flags=re.MULTILINE) if s.startswith(begins)]
    return found


def blocks(language, text=PAGE):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block for name, block in found if name == language]


def documented(text):
    """Yield (table, key, default as written) of the tables of settings in a section."""
    inside = None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            inside = None
        elif cells[0].startswith("setting") and "default" in cells:
            inside = (*re.findall(r"`\[(\w+)\]`", cells[0]), ""), cells.index("default")
        elif inside and not set(cells[0]) <= set("-"):
            (key,) = re.findall(r"`([\w.]+)`", cells[0])
            (table, *_), column = inside
            table, key = key.split(".") if "." in key else (table, key)
            yield table, key, cells[column]


def test_every_job_is_looked_at():
    assert set(SECTIONS) == set(JOBS) - {"mirror", "init"}


@pytest.mark.parametrize("job", SECTIONS)
def test_each_setting_is_on_the_page_with_its_default(job):
    wanted = {
        (table.name, field.name): field.default
        if field.default_factory is msgspec.NODEFAULT
        else field.default_factory()
        for table in msgspec.structs.fields(FILES[job])
        if table.name not in SHARED
        for field in msgspec.structs.fields(table.type)
    }
    found = [(table, key, default) for table, key, default in documented(section(SECTIONS[job]))]
    assert sorted((table, key) for table, key, _ in found) == sorted(wanted)
    for table, key, written in found:
        default = wanted[table, key]
        literal = re.fullmatch(r"`(.+)`", written)
        if default is msgspec.NODEFAULT:
            assert written == "required", key
        elif default in (None, [], {}):
            assert written, key
            assert not literal, key  # in words what holds without it
        else:
            assert literal, key
            assert tomllib.loads(f"v = {literal[1]}")["v"] == default, key


def test_the_tables_that_all_jobs_have_are_on_the_page():
    (text,) = [b for b in blocks("toml") if "[spark]" in b]
    found = tomllib.loads(text)
    assert set(found["cluster"]) == {f.name for f in msgspec.structs.fields(Cluster)}
    assert set(found["spark"]) == {f.name for f in msgspec.structs.fields(Spark)}
    msgspec.convert(found["cluster"], Cluster)
    msgspec.convert(found["spark"], Spark)


@pytest.mark.parametrize("job", JOBS)
def test_each_option_is_on_the_page(job):
    begins = {"mirror": SECTIONS["replay"], "init": "## Declarative:"}.get(job) or SECTIONS[job]
    text = section(begins)
    shared = {"-b", "--config", "--set", "--master", "--conf", "--command-config"}
    for p in parameters(grammar.imported(JOBS[job].target)):
        for name in set(p.names if p.is_option else ()) - shared:
            assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text), name


@pytest.mark.parametrize("text", [b for b in blocks("toml") if "[spark]" not in b],
                         ids=lambda t: t.split("\n")[0])  # fmt: skip
def test_each_file_of_settings_is_one(text):
    found = tomllib.loads(text)
    if set(found) == {"cluster"}:  # what all jobs share
        msgspec.convert(found["cluster"], Cluster)
        return
    (job,) = set(found) & set(FILES)
    if job == "lake":
        found.setdefault("cluster", {"bootstrap_servers": "127.0.0.1:9092"})
    msgspec.convert(found, FILES[job])


@pytest.mark.parametrize("job", [name for name in JOBS if name != "init"])
def test_each_job_is_a_module_and_a_script(job):
    """The three ways of the page: spark-submit gets the file that the module names."""
    assert "import ottla.pipelines.NAME as m; print(m.__file__)" in PAGE
    module = f"ottla.pipelines.{job}"
    for way in (["-m", module], [str(import_module(module).__file__)]):
        done = subprocess.run(
            [sys.executable, *way, "--help"], capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stdout.startswith(f"Usage: ottla pipeline {job} "), way


def commands(text):
    """Yield the arguments of each `ottla pipeline …` in lines of a shell or of a crontab."""
    if any(line.startswith("$ ") for line in text.splitlines()):
        text = "\n".join(x[2:] for x in text.splitlines() if x.startswith("$ "))
    for line in text.replace("\\\n", " ").splitlines():
        if "ottla pipeline" not in line:
            continue
        words = shlex.split(line, comments=True)
        for word in words:
            if word.count("ottla pipeline"):
                yield from commands(word)
        for first in [i for i in range(len(words)) if words[i : i + 2] == ["ottla", "pipeline"]]:
            found = words[first + 2 :]
            ends = [i for i, w in enumerate(found) if re.match(r"(&&|\|\||[|;]|\d*>)", w)]
            yield found[: min(ends, default=len(found))]


def accepted(words):
    return grammar.command(["pipeline", words[0]]).make_context("", words[1:]).params


def test_each_command_is_accepted():
    found = [words for block in blocks("") for words in commands(block) if words[0] != "NAME"]
    for words in found:
        accepted(words)
    assert {words[0] for words in found} == set(JOBS)
    assert len(found) >= 20


def test_each_crontab_line_has_five_fields_and_a_command():
    (text,) = [b for b in blocks("") if b.startswith("# crontab")]
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for line in lines:
        *times, command = line.split(None, 5)
        assert all(re.fullmatch(r"\*(/\d+)?|\d+", field) for field in times), line
        assert command.startswith("flock ")
    assert [len(list(commands(line))) for line in lines] == [1, 2]


@pytest.mark.parametrize("code", blocks("python"), ids=range(len(blocks("python"))))
def test_each_example_in_python_is_python(code):
    names = {n.id for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Name)}
    assert names
    compile(code, "PIPELINES.md", "exec")


class Operator:
    """Airflow's BashOperator as the example uses it."""

    made: list["Operator"] = []  # noqa: RUF012 - one list for a test

    def __init__(self, *, task_id, bash_command, retries=None):
        self.task_id, self.command, self.retries = task_id, bash_command, retries
        self.after = None
        Operator.made.append(self)

    def __rshift__(self, other):
        other.after = self
        return other


class Graph:
    """Airflow's DAG: only the arguments that Airflow's documentation has."""

    known = {"schedule", "start_date", "catchup", "max_active_runs", "default_args"}  # noqa: RUF012

    def __init__(self, dag_id, **arguments):
        assert set(arguments) <= self.known
        self.name, self.arguments = dag_id, arguments

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def test_the_airflow_example_makes_commands_that_are_accepted(monkeypatch):
    """Without Airflow itself: a package that is larger than this one, with a database."""
    (code,) = [b for b in blocks("python") if "airflow" in b]
    for name, members in {
        "airflow": {"DAG": Graph},
        "airflow.providers": {},
        "airflow.providers.standard": {},
        "airflow.providers.standard.operators": {},
        "airflow.providers.standard.operators.bash": {"BashOperator": Operator},
    }.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(Operator, "made", [])
    there = {}
    exec(code, there)
    land, checked = Operator.made
    assert (checked.after, land.after) == (land, None)
    for operator in (land, checked):
        ((name, *rest),) = commands(operator.command)
        assert name == "lake"
        assert accepted([name, *rest])["config"] == Path("/etc/ottla/flights.toml")
    assert "--verify" in checked.command
    assert there["dag"].arguments["max_active_runs"] == 1
    assert checked.retries == 0
