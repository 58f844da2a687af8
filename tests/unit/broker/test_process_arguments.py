"""A broker's arguments, with and without click; and what a broker's process does not load."""

import subprocess
import sys
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker import process
from ottla.zookeeper.znodes import desanitize, sanitize

HEAVY = ("argparse", "click", "gettext", "pathlib", "urllib.parse", "ipaddress")
"""Modules of the standard library that an idle broker would keep for nothing: 1.2 MB."""


SAME = ["--config", "f", "--log-level", "debug", "--override", "a=b", "--override", "c=d=e"]


@pytest.mark.parametrize(
    "words", [SAME, ["--config=f", "--log-level=debug", "--override=a=b", "--override", "c=d=e"]]
)
def test_arguments(words, monkeypatch):
    read = []
    monkeypatch.setattr(process, "serve", lambda arguments, *_: read.append(arguments) or 7)
    assert process.main(words) == 7
    assert [list(read[0].override), read[0].config, read[0].log_level] == [
        ["a=b", "c=d=e"], "f", "debug",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "words",
    ["", "--config", "--log-file l", "--config f --log-level loud", "--config f --log-format xml",
     "--config f x", "--conf f", "--config f --none n"],
)  # fmt: skip
def test_a_mistake_is_one_line(words, capsys):
    assert process.main(words.split()) == 2
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
