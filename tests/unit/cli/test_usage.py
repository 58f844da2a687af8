"""What is typed wrong is told in one line, before any cluster is asked."""

import io

import pytest

from ottla.cli.grammar import main, walk
from ottla.cli.spellings import COMMANDS, OPTIONS
from ottla.cli.table import load
from support.commands import every_command

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


HINTS = [
    ("foo", "`ottla --help` lists them"),
    ("topics foo", "`ottla topics --help` lists them"),
    ("topic list", "did you mean topics?"),
    ("kafka-topics.sh --list", "did you mean topics?"),
    ("kafka-console-consumer", "did you mean consume?"),
    ("kafka-delete-records", "did you mean topics delete-records?"),
    ("broker restrat 1", "did you mean restart?"),
    ("pipeline lak --follow", "did you mean lake?"),
    ("pipeline lake --foll", "did you mean --follow?"),
    ("broker run --conf f", "did you mean --config?"),
    ("topics list --boot a", "did you mean --bootstrap-server?"),
    ("topics --describe --topic t", "did you mean `ottla topics describe`?"),
    ("reassign --generate", "did you mean `ottla reassign plan`?"),
    ("topics describe --topic t", "it is an argument here: [NAME]"),
    ("groups describe --group g", "it is an argument here: [GROUP]"),
    ("acls add --allow-principal User:a", "it is an argument here: PRINCIPAL"),
    ("elect --election-type preferred", "it is an argument here: preferred|unclean"),
    ("topics create x -p 3", "did you mean --partitions?"),
    ("topics create x -r 3", "did you mean --replication-factor?"),
    ("topics create x -c a=b", "did you mean --config?"),
    ("topics list -o json", "did you mean --output?"),
    ("topics list --json", "did you mean --output json?"),
    ("consume t -o 5", "did you mean --output or --offset?"),
    ("groups reset-offsets g --to-earliest", "did you mean --to earliest?"),
    ("verify-replicas --topic-white-list x", "did you mean --topics-include?"),
    ("reassign plan --zookeeper x", "did you mean --bootstrap-server?"),
    ("configs alter --topic t --add-config a=b", "did you mean --set?"),
    ("topics list --bootstrap-servers a", "did you mean --bootstrap-server?"),
]


@pytest.mark.parametrize(("words", "hint"), HINTS)
def test_what_other_tools_call_otherwise_is_hinted_at(words, hint, capsys):
    assert main(words.split()) == 2
    told = capsys.readouterr()
    assert hint in told.err
    assert (told.out, told.err.count("\n")) == ("", 1)


def test_all_that_is_hinted_at_is_there():
    declared = [p for command in every_command().values() for p in command.known if p.is_option]
    known = {name for p in declared for name in p.names}
    assert {n for meant in OPTIONS.values() for n in meant if n.split()[0] not in known} == set()
    names = [" ".join(path) for path, node in walk(load()[0]) if not node.instead]
    known = {*names, *(name.partition(" ")[2] for name in names)}
    assert set(COMMANDS.values()) - known == set()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (
            "status -b http://localhost:9092",
            1,
            "http:// does not belong there; write localhost:9092",
        ),
        ("topics list -b PLAINTEXT://[::1]:9092", 1, "PLAINTEXT:// does not belong there"),
        ("up --set process.roles=broker --dir none", 2, "KRaft is not served"),
        ("up --set controller.quorum.voters=1@h:1 --dir none", 2, "KRaft is not served"),
        ("up --zookeeper http://h:2181 --dir none", 1, "has a scheme; write host:port"),
        ("znode ls / --zookeeper zk://h:2181", 1, "has a scheme; write host:port"),
    ],
)
def test_a_wrong_address_or_setting_says_why(words, code, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == code
    told = capsys.readouterr()
    assert says in told.err
    assert (told.out, told.err.count("\n")) == ("", 1)


def test_status_does_not_advise_itself(capsys):
    assert main(["status", "-b", "127.0.0.1:1"]) == 1
    assert "ottla status" not in capsys.readouterr().err
