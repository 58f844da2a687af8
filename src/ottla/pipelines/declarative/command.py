"""`ottla pipeline init DIR`: copies a project for `spark-pipelines`, its settings filled in.

Invariants: starts no Spark and asks no cluster; a folder that has something in it is refused and
stays as it is.
"""

import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from ottla.cli import Argument, Option
from ottla.client.client import parse_bootstrap
from ottla.model.errors import ConfigError
from ottla.pipelines import job
from ottla.pipelines.config import Cluster

NAME = "init"
PROJECT = Path(__file__).parent / "project"
FILLED = ("spark-pipeline.yml", "conf/spark-defaults.conf")
"""The files of the project in which `@NAME@` stands for a setting."""
NEEDED = ("pyspark", "grpc", "grpc_status", "google.rpc", "zstandard", "yaml", "pandas", "pyarrow")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_ODD = re.compile(r"[\\;:\x00-\x1f]")


def init(
    folder: Annotated[Path, Argument(metavar="DIR", help="A new or an empty folder")],
    topics: Annotated[
        Sequence[str],
        Option("--topic", metavar="TOPIC", help="A topic; repeatable where all have one schema"),
    ],
    schema: Annotated[
        str,
        Option(
            metavar="DDL", help="Columns of the values, as 'n long, day string', or a .ddl file"
        ),
    ],
    bootstrap_server: Annotated[
        str, Option("--bootstrap-server", "-b", metavar="HOST:PORT[,…]", help="The cluster")
    ] = "127.0.0.1:9092",
    command_config: Annotated[
        Path | None, Option(metavar="FILE", help="Kafka's client.properties, for TLS and SASL")
    ] = None,
) -> int:
    return job.run(NAME, lambda: _init(folder, bootstrap_server, topics, schema, command_config))


main = partial(job.main, NAME)


def _init(
    folder: Path, bootstrap: str, topics: Sequence[str], schema: str, properties: Path | None
) -> int:
    folder = folder.absolute()
    copy_project(folder, settings(folder, bootstrap, topics, schema, properties))
    reported = f"made {folder}; next:\n  cd {folder}\n"
    run = "SPARK_CONF_DIR=conf spark-pipelines"
    sys.stdout.write(f"{reported}  {run} dry-run\n  {run} run\n")
    missing = missing_modules()
    if missing:
        sys.stderr.write(
            f"pipeline {NAME}: spark-pipelines will not start here, {', '.join(missing)} "
            "missing: pip install 'ottla[declarative]'\n"
        )
    return job.EXIT_OK


def settings(
    folder: Path,
    bootstrap: str,
    topics: Sequence[str],
    schema: str,
    properties: Path | None = None,
) -> dict[str, str]:
    """Return what stands for each `@NAME@`; ConfigError for what cannot be."""
    try:
        parse_bootstrap(bootstrap)
    except ValueError as error:
        raise ConfigError(f"--bootstrap-server: {error}") from None
    for topic in topics:
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise ConfigError(f"--topic: {topic!r} is no name of a topic")
    if properties is not None:
        Cluster(bootstrap_servers=bootstrap, properties=str(properties)).security()
    if odd := _ODD.search(str(folder)):
        raise ConfigError(
            f"{str(folder)!r}: the catalog's address cannot hold {odd[0]!r}; choose another folder"
        )
    if schema.endswith(".ddl"):
        schema = Path(schema).read_text(encoding="utf-8")
    schema = " ".join(schema.split())
    if not schema:
        raise ConfigError("--schema is empty; write columns and types, as 'n long, day string'")
    texts = {
        "STORAGE": (folder / "storage").as_uri(),
        "BOOTSTRAP": bootstrap,
        "PROPERTIES": "" if properties is None else str(properties.absolute()),
        "TOPICS": ",".join(dict.fromkeys(topics)),
        "SCHEMA": schema,
    }
    return {
        **{name: json.dumps(text, ensure_ascii=False) for name, text in texts.items()},
        "METASTORE": f"jdbc:derby:;databaseName={folder / 'metastore'};create=true",
        "WAREHOUSE": (folder / "warehouse").as_uri(),
    }


def copy_project(folder: Path, values: Mapping[str, str]) -> None:
    """Copy the project to a folder that is new or empty; ConfigError if it is not."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not empty: give a new folder, or an empty one")
    filled = {}
    for name in FILLED:
        text = (PROJECT / name).read_text(encoding="utf-8")
        for key, value in values.items():
            text = text.replace(f"@{key}@", value)
        filled[name] = text
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PROJECT, folder, ignore=ignored, dirs_exist_ok=True)
    for name, text in filled.items():
        (folder / name).write_text(text, encoding="utf-8")


def missing_modules() -> list[str]:
    """Return the modules that spark-pipelines needs and this Python has not."""
    return [name for name in NEEDED if not _found(name)]


def _found(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # the package it is in
        return False
