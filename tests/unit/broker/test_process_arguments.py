"""A broker's arguments, with and without argparse; and what a broker's process does not load."""

import subprocess
import sys
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker import process
from ottla.broker.process import parse_arguments
from ottla.zookeeper.znodes import desanitize, sanitize

HEAVY = ("argparse", "gettext", "pathlib", "urllib.parse", "ipaddress")
"""Modules of the standard library that an idle broker would keep for nothing: 1.2 MB."""


@pytest.mark.parametrize(
    "words",
    [
        "--config f",
        "--config f --override a=b --override c=d=e",
        "--log-level debug --config f --log-file l --state-change-log none --metrics-socket m",
        "--config f --config g",
        "--config f --log-format json",
    ],
)
def test_plain_arguments_are_read_as_argparse_reads_them(words, monkeypatch):
    argv = words.split()
    with monkeypatch.context() as patched:
        patched.setattr(process, "_parse_any", None)  # it is not needed
        plain = parse_arguments(argv)
    assert plain == process._parse_any(argv)


@pytest.mark.parametrize(
    "words", ["--config=f --log-level=debug --override=a=b", "--conf f --log-l debug --over a=b"]
)
def test_other_ways_to_write_them_mean_the_same(words):
    assert parse_arguments(words.split()) == parse_arguments(
        ["--config", "f", "--log-level", "debug", "--override", "a=b"]
    )


@pytest.mark.parametrize(
    "words",
    ["", "--config", "--log-file l", "--config f --log-level loud", "--config f --log-format xml",
     "--config f x", "--config -f",
     "--config f --none n"],
)  # fmt: skip
def test_a_mistake_is_one_line(words, capsys):
    with pytest.raises(SystemExit) as ended:
        parse_arguments(words.split())
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_brokers_process_loads_nothing_that_only_commands_need():
    code = f"import sys, ottla.broker.process; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_names_are_sanitized_as_urls_are(name):
    assert sanitize(name) == quote(name, safe="").replace("~", "%7E")
    assert desanitize(sanitize(name)) == name == unquote(sanitize(name))
