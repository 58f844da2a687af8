"""Texts that another parser reads: whatever stands in a name or a path, it reads back."""

import os

import pytest

from ottla.admin import profiles
from ottla.admin.operations.input_files import parse_offsets, parse_password
from ottla.local import client_files
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.properties import load_properties
from ottla.security.sasl.jaas import parse_jaas
from ottla.zookeeper import embedded

NAMES = [
    "a b", "a#b", "a\\b", "a\\", "\\u12", "é", "日本", "😀", "a=b:c", "!a", "a;b", "${x}", "$(x)",
    "'''", '"""', "it's", 'a"b', "{}", "a\tb", "a\u2028b", "a\x85b", "a\x7fb", "a\x1bb",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_zoo_cfg(tmp_path, monkeypatch, name):
    commands = []
    monkeypatch.setattr(embedded, "find_java", lambda: "java")
    monkeypatch.setattr(embedded, "find_jars", lambda **_: ["a.jar"])
    monkeypatch.setattr(embedded, "_started", lambda command, *_, **__: commands.append(command))
    folder = tmp_path / name
    embedded.start_zookeeper(folder)
    found = load_properties((folder / "zoo.cfg").read_bytes())
    assert found["dataDir"] == str(folder / "data")
    assert found["tickTime"].isdigit()
    assert commands[0][-1] == str(folder / "zoo.cfg")


@pytest.mark.parametrize("name", NAMES)
def test_files_of_clients(tmp_path, name):
    ca = tmp_path / name / "ca.pem"
    client_files.write(tmp_path / "clients", "admin", name, "127.0.0.1:1,127.0.0.1:2", ca)
    java = load_properties((tmp_path / "clients" / "admin.properties").read_bytes())
    assert java["ssl.truststore.location"] == str(ca)
    options = parse_jaas("k", java["sasl.jaas.config"]).options
    assert options == {"username": "admin", "password": name}
    python = (tmp_path / "clients" / "admin.py").read_text("utf-8")
    found = {}
    exec(python.partition("CONFLUENT_KAFKA =")[0], found)
    assert (found["PASSWORD"], found["CA"]) == (name, str(ca))
    assert found["__doc__"].startswith("How Python programs connect as admin")
    lines = (tmp_path / "clients" / "admin.librdkafka.properties").read_text("utf-8").split("\n")
    assert f"ssl.ca.location={ca}" in lines


def test_files_of_clients_in_a_folder_that_is_not_utf_8(tmp_path):
    ca = tmp_path / os.fsdecode(b"\xff") / "ca.pem"
    client_files.write(tmp_path / "clients", "admin", "p", "127.0.0.1:1", ca)
    data = (tmp_path / "clients" / "admin.librdkafka.properties").read_bytes()
    assert b"ssl.ca.location=" + os.fsencode(ca) + b"\n" in data


@pytest.mark.parametrize("name", NAMES)
def test_profiles(tmp_path, monkeypatch, name):
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "config.toml"))
    wanted = profiles.Profiles("p", {"p": profiles.Profile(dir=f"/tmp/{name}")})
    profiles.save(wanted)
    assert profiles.load() == wanted


def test_a_profile_that_cannot_be_written_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "config.toml"))
    wanted = profiles.Profiles("p", {"p": profiles.Profile(dir="/tmp")})
    profiles.save(wanted)
    odd = profiles.Profile(dir=os.fsdecode(b"/tmp/\xff"))
    with pytest.raises(OttlaError, match="not UTF-8"):
        profiles.save(profiles.Profiles("p", {"p": odd}))
    assert profiles.load() == wanted


@pytest.mark.parametrize("name", [*NAMES, "a,b", "a\nb", "a\r\nb"])
def test_offsets_of_a_group(name):
    quoted = name.replace('"', '""')
    data = f'"{quoted}",t,0,5\n"{quoted}",t,1,6\r\n'.encode()
    wanted = {TopicPartition("t", 0): 5, TopicPartition("t", 1): 6}
    assert parse_offsets(data, "f", name) == wanted


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_password_in_a_file(name, end):
    assert parse_password((name + end).encode(), "f") == name
    with pytest.raises(OttlaError, match="one line"):
        parse_password((name + "\nx" + end).encode(), "f")
    with pytest.raises(OttlaError, match="empty"):
        parse_password(end.encode(), "f")
