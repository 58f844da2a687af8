"""Java and the jars of a real ZooKeeper: found, fetched, checked; or one line with the way out."""

import hashlib
import os
import shutil

import pytest

from ottla.model.errors import StartupError
from ottla.zookeeper import jars
from support.bare_machine import SERVER, make_bare, put_command, put_jars


@pytest.fixture
def bare(monkeypatch, tmp_path):
    return make_bare(monkeypatch, tmp_path)


@pytest.fixture
def published(monkeypatch):
    """Let empty files be what was published."""
    nothing = hashlib.sha256(b"").hexdigest()
    monkeypatch.setattr(jars, "FETCHED", dict.fromkeys(jars.FETCHED, nothing))


def cache_of(bare):
    return bare / "cache" / "ottla" / "zookeeper" / jars.VERSION


def put_maven(bare, *names, content=""):
    """Put a Maven there that makes files of these names where it is told to."""
    made = "\n".join(f"printf '{content}' >$folder/{name}" for name in names)
    put_command(
        bare / "bin",
        "mvn",
        f"for a; do case $a in -DoutputDirectory=*) folder=${{a#*=}};; esac; done\n{made}",
    )


def test_no_java_is_one_line(bare):
    with pytest.raises(StartupError, match=r"no Java found.*JAVA_HOME.*ottla\[java\]"):
        jars.find_java()


def test_java_home_comes_before_the_path(bare, monkeypatch):
    on_path = put_command(bare / "bin", "java")
    assert jars.find_java() == on_path
    at_home = put_command(bare / "home" / "bin", "java")
    monkeypatch.setenv("JAVA_HOME", str(bare / "home"))
    assert jars.find_java() == at_home


def test_no_jars_is_one_line_and_nobody_is_sent_to_spark(bare):
    with pytest.raises(StartupError, match=r"Maven.*OTTLA_ZOOKEEPER_JARS.*`--zookeeper own`") as e:
        jars.find_jars()
    assert "spark" not in str(e.value)


def test_the_folder_given_must_have_them_all(bare, monkeypatch):
    folder = put_jars(bare / "jars", *SERVER[1:])
    monkeypatch.setenv(jars.JARS_VARIABLE, str(folder))
    with pytest.raises(StartupError, match=r"OTTLA_ZOOKEEPER_JARS=.*zookeeper-jute"):
        jars.find_jars()
    put_jars(folder, *SERVER)
    names = [jar.name for jar in jars.find_jars()]
    assert sorted(names) == sorted(set(SERVER) - {"metrics-core-2.2.0.jar"})


def test_the_cache_is_checked_at_each_start(bare, published):
    folder = put_jars(cache_of(bare), *jars.FETCHED)
    assert {jar.parent for jar in jars.find_jars()} == {folder}
    (folder / SERVER[0]).write_bytes(b"another")
    with pytest.raises(StartupError, match=rf"{SERVER[0]} has not the SHA-256.*remove {folder}"):
        jars.find_jars()


def test_a_server_with_sasl_needs_one_more(bare, monkeypatch):
    folder = put_jars(bare / "jars", *SERVER)
    monkeypatch.setenv(jars.JARS_VARIABLE, str(folder))
    with pytest.raises(StartupError, match="netty-handler"):
        jars.find_jars(sasl=True)
    put_jars(folder, "netty-handler-4.1.105.Final.jar")
    assert "netty-handler-4.1.105.Final.jar" in [jar.name for jar in jars.find_jars(sasl=True)]


def test_what_is_fetched_is_announced_and_checked(bare, published):
    said = []
    put_maven(bare, *jars.FETCHED)
    found = jars.find_jars(said.append)
    assert [jar.name for jar in found] == list(jars.FETCHED)
    assert all(jar.exists() for jar in found)
    assert said[0].startswith(f"fetching the 6 jars of ZooKeeper {jars.VERSION} by Maven")
    assert str(cache_of(bare)) in said[0]
    assert "SHA-256" in said[1]
    (bare / "bin" / "mvn").unlink()
    assert jars.find_jars(said.append) == found
    assert len(said) == 2, "nothing was fetched the second time"


@pytest.mark.parametrize("wrong", ["another", "missing"])
def test_a_jar_that_is_not_the_published_one_is_not_kept(bare, published, wrong):
    names = list(jars.FETCHED)[wrong == "missing" :]
    put_maven(bare, *names, content="x" if wrong == "another" else "")
    with pytest.raises(StartupError, match=r"zookeeper-3\.8\.4\.jar whose SHA-256.*nothing was"):
        jars.find_jars()
    assert list(cache_of(bare).parent.iterdir()) == []


def test_maven_that_fails_is_one_line(bare):
    put_command(bare / "bin", "mvn")
    with pytest.raises(StartupError, match="Maven could not fetch ZooKeeper"):
        jars.find_jars()


@pytest.mark.java
@pytest.mark.alone
def test_maven_brings_what_is_written_here(monkeypatch, tmp_path):
    """With what Maven has on this machine; the test fetches nothing."""
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip("no Maven")
    path = os.environ["PATH"]
    make_bare(monkeypatch, tmp_path)
    put_command(tmp_path / "bin", "mvn", f'PATH={path} exec {maven} --offline "$@"')
    try:
        found = jars.find_jars()
    except StartupError as error:
        if "offline" in str(error):
            pytest.skip("Maven has not fetched these jars on this machine before")
        raise
    assert sum(jar.stat().st_size for jar in found) > 3_900_000
