"""A machine without Java, Maven and cache, and what a test puts there."""

import importlib.util
from pathlib import Path

from ottla.zookeeper.jars import JARS_VARIABLE

SERVER = [
    "zookeeper-3.8.4.jar",
    "zookeeper-jute-3.8.4.jar",
    "slf4j-api-1.7.36.jar",
    "metrics-core-2.2.0.jar",
    "metrics-core-4.1.12.1.jar",
    "snappy-java-1.1.10.5.jar",
]


def make_bare(monkeypatch, folder: Path) -> Path:
    """Leave nothing but `folder`, whose `bin` is the PATH and whose `cache` is the cache."""
    monkeypatch.setenv("PATH", str(folder / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv(JARS_VARIABLE, raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    return folder


def put_jars(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"")
    return folder


def put_command(folder: Path, name: str, script: str = "exit 3") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    command = folder / name
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    return command
