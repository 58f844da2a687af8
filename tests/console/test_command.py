"""The command `ottla console`: what it says where something is missing or typed wrong."""

import importlib.util

import pytest

from ottla.cli import grammar as cli


def run(*words):
    return cli.main(["console", *words, "-b", "127.0.0.1:9"])


def test_missing_libraries_are_one_line(monkeypatch, capsys):
    there = importlib.util.find_spec
    hidden = {"uvicorn", "jinja2"}
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in hidden else there(name)
    )
    assert run() == 1
    assert capsys.readouterr().err == (
        "ottla: the console needs uvicorn, jinja2; install with: pip install 'ottla[console]'\n"
    )


@pytest.mark.parametrize("host", ["nowhere", "", "256.1.1.1", "127.0.0.1:80"])
def test_a_host_is_an_address(capsys, host):
    assert run("--host", host) == 2
    said = capsys.readouterr().err
    assert said.startswith("ottla console: --host")
    assert said.count("\n") == 1
