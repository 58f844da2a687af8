"""Every command on a folder that is not what it reads: exit code 1 and one line, never silence."""

import errno
import gzip
import os
import sys

import pytest

from ottla.cli import grammar as cli
from support.commands import every_command

MADE = {"up", "demo", "certs init"}
"""They make the folder."""
WRITTEN = {"profile set"}
"""It writes a name down and reads nothing."""
WORDS = {
    "broker stop": "0", "broker start": "0", "broker restart": "--all", "broker kill": "0",
    "broker pause": "0", "broker resume": "0", "broker cut": "0", "broker drain": "0",
    "broker remove": "0 --yes", "certs issue": "x", "certs rotate": "--all",
    "topics create": "t", "topics describe": "t", "topics alter": "t --partitions 3",
    "topics delete": "t --yes", "topics offsets": "t",
    "topics delete-records": "t --before end --yes",
    "produce": "t", "consume": "t", "configs describe": "--topic t",
    "configs alter": "--topic t --set retention.ms=1", "groups describe": "g", "groups lag": "g",
    "groups delete": "g --yes", "groups delete-offsets": "g --topic t --yes",
    "groups reset-offsets": "g --topic t --to earliest", "groups watch": "g", "txn describe": "i",
    "txn producers": "t 0", "txn abort": "t 0 --start-offset 0 --yes",
    "acls add": "User:a --operation Read --topic t", "acls remove": "--topic t --yes",
    "acls check": "User:a read --topic t", "reassign plan": "--all",
    "reassign execute": "--file {plan}",
    "reassign verify": "--file {plan}",
    "reassign cancel": "--file {plan}", "elect": "preferred --all",
    "verify-replicas": "t", "users add": "x --password-file {plan}", "users remove": "x --yes",
    "users rotate": "--all", "cluster diff": "{snapshot}", "cluster apply": "{snapshot}",
    "znode get": "/controller", "why": "t-0", "whatif kill": "0", "whatif shutdown": "0",
    "whatif drain": "0", "whatif add-brokers": "9", "whatif reassign": "{plan}",
    "whatif unclean": "t-0", "whatif config": "min.insync.replicas=2",
}  # fmt: skip
"""What each command must have besides the folder."""
PLAN = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[0]}]}'
SNAPSHOT = '{"cluster_id":"c","topics":{},"configs":{},"quotas":[],"groups":{}}'


WITH_DIR = {
    name
    for name, command in every_command().items()
    if any(p.name == "directory" for p in command.known)
}
CASES = [
    *((name, "--dir") for name in WITH_DIR - MADE - WRITTEN),
    *((name, "--folder") for name in ("certs issue", "certs list", "certs rotate")),
    *((name, "") for name in ("why", "history replay", "dump-log")),
    ("history timeline", "t-0"),
]


def none(tmp_path):
    return tmp_path / "none"


def empty(tmp_path):
    (tmp_path / "empty").mkdir(exist_ok=True)
    return tmp_path / "empty"


def other(tmp_path):
    """A folder of another program, and below it one of its logs."""
    below = tmp_path / "other" / "sub" / "broker-0"
    below.mkdir(parents=True)
    (below / "server.log").write_text("[2026-11-23 12:30:01,123] t-0 is here\n")
    (tmp_path / "other" / "part-0.parquet").write_bytes(b"PAR1\xff\x00")
    return tmp_path / "other"


def file(tmp_path):
    (tmp_path / "file").write_text("t-0\n")
    return tmp_path / "file"


def file_below(tmp_path):
    return file(tmp_path) / "below"


def etc(_):
    from pathlib import Path

    return Path("/etc")


def typed(name, option, folder, tmp_path):
    (tmp_path / "plan.json").write_text(PLAN)
    (tmp_path / "snapshot.json").write_text(SNAPSHOT)
    words = WORDS.get(name, "").format(
        plan=tmp_path / "plan.json", snapshot=tmp_path / "snapshot.json"
    )
    return [*name.split(), *words.split(), *option.split(), str(folder)]


@pytest.mark.parametrize(("name", "option"), sorted(CASES))
def test_a_wrong_folder_is_one_line_and_exit_code_1(
    name, option, tmp_path, monkeypatch, capfdbinary
):
    monkeypatch.delenv("OTTLA_DIR", raising=False)
    monkeypatch.setattr(sys, "stdin", None)
    for wrong in (none, empty, other, file, file_below, etc):
        if name == "certs issue" and wrong in (none, empty, other):
            continue  # it makes a CA there
        if (name, wrong) == ("certs issue", etc) and os.access("/etc", os.W_OK):
            continue  # it would make a CA there
        said = refused(typed(name, option, wrong(tmp_path), tmp_path), capfdbinary)
        assert "; " in said, f"the way out: {said}"


def refused(words, capture):
    """Run a command that is to fail by one line; return the line."""
    code = cli.main(words)
    out, err = capture.readouterr()
    assert (code, out) == (1, b""), err
    assert err.count(b"\n") == 1, err
    assert b"Traceback" not in err
    return err.decode()


OFFLINE = [("why", ""), ("history replay", ""), ("dump-log", ""), ("history timeline", "t-0"),
           ("history merge", "--dir")]  # fmt: skip


@pytest.mark.parametrize("place", ["", "broker-0"])
@pytest.mark.parametrize(("name", "option"), OFFLINE)
def test_a_folder_that_may_not_be_read_is_named(
    name, option, place, tmp_path, monkeypatch, capfdbinary
):
    folder = tmp_path / "closed"
    (folder / "broker-0").mkdir(parents=True)
    closed, scandir = folder / place, os.scandir

    def refusing(path="."):
        if os.fspath(path) == str(closed):  # root may read everything
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(closed))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    said = refused(typed(name, option, folder, tmp_path), capfdbinary)
    assert said == f"ottla: {closed}: Permission denied; use an account that may\n"


def test_damage_of_what_is_compressed_is_named(tmp_path, capfdbinary):
    packed = gzip.compress(b"[2026-11-23 12:30:01,123] t-0 is here\n" * 1000)
    for cut, byte in ((len(packed) // 2, b""), (len(packed) - 9, b"\xff"), (3, b"")):
        log = tmp_path / "state-change.log.20261123113000123.gz"
        log.write_bytes(packed[:cut] + byte + packed[cut + 1 :] if byte else packed[:cut])
        code = cli.main(["history", "merge", "--dir", str(tmp_path)])
        assert code == 1
        assert str(log).encode() in capfdbinary.readouterr().err
        journal = tmp_path / "ottla-controller-journal.jsonl.20261123113000123.gz"
        log.rename(journal)
        code = cli.main(["why", "t-0", str(tmp_path)])
        assert code == 1
        assert str(journal).encode() in capfdbinary.readouterr().err


READ = [
    (name, max(p.names, key=len))
    for name, command in every_command().items()
    for p in command.known
    if p.is_option
    and not p.is_flag
    and (max(p.names, key=len).endswith("-file") or "FILE" in p.metavar or p.metavar == "PATH")
    and max(p.names, key=len)
    not in ("--html", "--save", "--rollback-file", "--dir", "--command-config")
]
"""Options that name a file to be read."""


@pytest.mark.parametrize(("name", "option"), READ)
def test_a_wrong_file_is_one_line(name, option, tmp_path, monkeypatch, capfdbinary):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OTTLA_DIR", raising=False)
    for wrong in (none, empty, file_below):
        words = typed(name, option, wrong(tmp_path), tmp_path)
        if WORDS.get(name, "").startswith(option):
            words = [*name.split(), option, str(wrong(tmp_path))] if wrong is none else words
        code = cli.main(words)
        out, err = capfdbinary.readouterr()
        assert code in (1, 2), (words, out, err)
        assert (out, err.count(b"\n")) == (b"", 1), (words, out, err)
