"""What is typed wrong is told in one line, before any cluster is asked."""

import io

import pytest

from ottla.admin.cli import main

WRONG_USE = [
    ("broker", "drain", "x"),
    ("configs", "describe"),
    ("configs", "describe", "--topic", "t", "--quotas"),
    ("configs", "describe", "--topic", "t", "--broker", "0"),
    ("configs", "describe", "--user", "u", "--user-defaults"),
    ("configs", "describe", "--user", "u", "--ip", "127.0.0.1"),
    ("configs", "alter", "--set", "a=1"),
    ("configs", "alter", "--topic", "t"),
    ("configs", "alter", "--topic", "t", "--set", "a"),
    ("configs", "alter", "--topic", "t", "--delete", "a=1"),
    ("configs", "alter", "--topic", "t", "--set", "a=1", "--delete", "a"),
    ("groups", "reset-offsets", "g"),
    ("groups", "reset-offsets", "g", "--to", "soon"),
    ("groups", "reset-offsets", "g", "--to", "latest", "--shift-by", "1"),
    ("groups", "reset-offsets", "g", "--to-datetime", "yesterday"),
    ("groups", "reset-offsets", "g", "--by-duration", "P1M"),
    ("groups", "reset-offsets", "g", "--to-offset", "-1"),
    ("groups", "reset-offsets", "g", "--to", "latest", "--topic", "t:x"),
    ("groups", "list", "--state", "nosuch"),
    ("groups", "lag"),
    ("groups", "lag", "g", "--all"),
    ("groups", "delete", "g"),
    ("txn", "abort", "t", "0", "--start-offset", "1"),
    ("txn", "hanging", "--older-than", "soon"),
]


@pytest.mark.parametrize("arguments", WRONG_USE, ids=" ".join)
def test_wrong_use_is_told_in_one_line(arguments, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main([*arguments, "--bootstrap-server", "127.0.0.1:1"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1, told.err
