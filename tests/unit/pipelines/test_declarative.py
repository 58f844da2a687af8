"""`ottla pipeline init`: what it copies, what it fills in, what it refuses. No Spark is started."""

import sys
from pathlib import Path

import pytest

from ottla.pipelines.declarative import command as init

SCHEMA = 'n long, `a "b"` string'


def files(folder: Path) -> dict[str, str]:
    return {
        p.relative_to(folder).as_posix(): p.read_text(encoding="utf-8")
        for p in folder.rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }


def made(folder: Path, *more: str) -> int:
    topics = [] if "--topic" in more else ["--topic", "flights"]
    schema = [] if "--schema" in more else ["--schema", SCHEMA]
    return init.main([str(folder), *topics, *schema, *more])


def test_all_of_the_project_is_copied_and_filled_in(tmp_path, capsys):
    yaml = pytest.importorskip("yaml")
    folder = tmp_path / "new folder"
    assert made(folder, "--topic", "a", "--topic", "b", "--bootstrap-server", "h:1,i:2") == 0
    found, original = files(folder), files(init.PROJECT)
    assert found.keys() == original.keys() >= {"spark-pipeline.yml", "transformations/tables.py"}
    changed = {name for name in found if found[name] != original[name]}
    assert changed == set(init.FILLED)
    specification = yaml.safe_load(found["spark-pipeline.yml"])
    told = specification["configuration"]
    assert told["spark.ottla.schema"] == SCHEMA
    assert told["spark.ottla.topics"] == "a,b"
    assert told["spark.ottla.bootstrap"] == "h:1,i:2"
    assert specification["storage"] == (folder / "storage").as_uri()
    assert all(isinstance(value, str) for value in told.values())  # Spark takes no others
    for name in init.FILLED:
        assert "@" not in found[name]
    assert f"databaseName={folder}/metastore;" in found["conf/spark-defaults.conf"]
    assert "SPARK_CONF_DIR=conf spark-pipelines run" in capsys.readouterr().out


def test_a_schema_may_stand_in_a_file(tmp_path):
    (tmp_path / "flights.ddl").write_text("n long,\n  day string\n")
    assert made(tmp_path / "new", "--schema", str(tmp_path / "flights.ddl")) == 0
    text = (tmp_path / "new" / "spark-pipeline.yml").read_text()
    assert 'spark.ottla.schema: "n long, day string"\n' in text


def test_a_folder_that_is_not_empty_is_refused_and_stays(tmp_path, capsys):
    (tmp_path / "mine").write_text("precious")
    assert made(tmp_path) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == (
        f"pipeline init: {tmp_path} is not empty: give a new folder, or an empty one\n"
    )
    assert files(tmp_path) == {"mine": "precious"}
    assert made(tmp_path / "mine") == 1  # a file


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--topic", "a/b"], "'a/b' is no name of a topic"),
        (["--bootstrap-server", "nowhere"], "--bootstrap-server: "),
        (["--schema", "  "], "--schema is empty"),
        (["--schema", "missing.ddl"], "missing.ddl: No such file"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_made(tmp_path, capsys, more, told):
    assert made(tmp_path / "new", *more) == 1
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_a_folder_that_the_catalogs_address_cannot_hold_is_refused(tmp_path, capsys):
    assert made(tmp_path / "a;b") == 1
    assert "cannot hold ';'" in capsys.readouterr().err


def test_what_spark_pipelines_lacks_is_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(init, "NEEDED", ("sys", "no_such_module", "no_such.module"))
    assert made(tmp_path / "new") == 0
    assert capsys.readouterr().err == (
        "pipeline init: spark-pipelines will not start here, no_such_module, no_such.module "
        "missing: pip install 'ottla[declarative]'\n"
    )
    assert "no_such_module" not in sys.modules
