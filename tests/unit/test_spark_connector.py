"""Finding the connector's jars: from the cache, through Maven with a second try, or not at all."""

import shutil
import stat

import pytest

from ottla.model.errors import StartupError
from support import spark_connector as connector

MAVEN = """#!/bin/sh
echo "$@" >> {log}
for a do case $a in
  -DoutputDirectory=*) out=${{a#*=}};;
  -Dtoken.version={good}) works=1;;
esac; done
[ -n "$works" ] || {{ echo "[ERROR] Could not find artifact token-provider"; exit 1; }}
mkdir -p "$out" && touch "$out/spark-sql-kafka-0-10_2.13-4.2.0.jar" "$out/kafka-clients-3.9.2.jar"
"""


@pytest.fixture
def maven(tmp_path, monkeypatch):
    """Put a Maven of our own on the PATH; it succeeds for one version of the token provider."""

    def install(good):
        folder = tmp_path / "bin"
        folder.mkdir()
        script = folder / "mvn"
        script.write_text(MAVEN.format(log=tmp_path / "calls", good=good))
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        return tmp_path / "calls"

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return install


def test_versions_equal_to_pysparks_first(maven):
    calls = maven("4.2.0")
    jars = connector.connector_jars("4.2.0")
    assert [j.name for j in jars] == [
        "kafka-clients-3.9.2.jar",
        "spark-sql-kafka-0-10_2.13-4.2.0.jar",
    ]
    assert len(calls.read_text().splitlines()) == 1


def test_then_the_pinned_token_provider_and_the_cache_is_kept(maven):
    calls = maven(connector.PINNED_TOKEN_PROVIDER)
    assert len(connector.connector_jars("4.2.0")) == 2
    assert len(connector.connector_jars("4.2.0")) == 2
    tried = calls.read_text().splitlines()
    assert len(tried) == 2
    assert "-Dtoken.version=4.2.0" in tried[0]
    assert "-Dtoken.version=4.0.0" in tried[1]


def test_jars_that_another_process_fetched_meanwhile_stay_as_they_are(maven, monkeypatch):
    """Its Spark may be starting with them: to put others in their place would take them away."""
    maven("4.2.0")
    fetch = connector._copy_dependencies

    def while_another_does(maven, version, token_provider, target):
        problem = fetch(maven, version, token_provider, target)
        cache = connector.cache_folder(version)
        cache.mkdir()
        (cache / "spark-sql-kafka-0-10_2.13-4.2.0.jar").write_bytes(b"theirs")
        return problem

    monkeypatch.setattr(connector, "_copy_dependencies", while_another_does)
    (jar,) = connector.connector_jars("4.2.0")
    assert jar.read_bytes() == b"theirs"


def test_what_maven_says_is_told(maven):
    maven("none")
    with pytest.raises(StartupError, match="Could not find artifact token-provider"):
        connector.connector_jars("4.2.0")


def test_without_maven_there_is_no_folder_of_jars(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert connector.connector_jars("4.2.0") is None


def test_the_pom_ships_with_the_package():
    assert connector.CONNECTOR in connector.POM.read_text()
