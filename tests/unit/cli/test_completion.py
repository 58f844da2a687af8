"""What shells offer: by the candidates themselves, and by a real bash."""

import contextlib
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from ottla.admin import connection
from ottla.cli import completion, grammar
from support.commands import every_command

NAMES = {"topic": ["orders", "other", "x"], "group": ["audit"], "broker": ["0", "1"],
         "partition": ["orders-0", "x-0"], "number": ["0", "1", "2"],
         "profile": ["prod"], "transaction": ["pay-1"]}  # fmt: skip


@pytest.fixture
def offered(monkeypatch):
    """Return what is offered for words, and which names are asked for."""
    asked = []

    def known(kind, chosen):
        asked.append((kind, dict(chosen)))
        return NAMES[kind]

    monkeypatch.setattr(connection, "names", known)
    monkeypatch.setenv(grammar.COMPLETE, "bash_complete")

    def offered(*words):
        shell = completion.SHELLS["fish"](grammar.root(), {}, "ottla", grammar.COMPLETE)
        return shell.get_completions(list(words[:-1]), words[-1]), asked

    return offered


FILES = "files"
CASES = [
    (["topi"], ["topics"]),
    (["topics", "de"], ["describe", "delete", "delete-records"]),
    (["topics", "describe", "o"], ["orders", "other"]),
    (["topics", "describe", "orders", "x"], ["x"]),
    (["topics", "describe", "--under-r"], ["--under-replicated"]),
    (["topics", "list", "--output", ""], ["table", "json", "tsv"]),
    (["topics", "list", "--output=j"], ["--output=json"]),
    (["consume", "-t", "ot"], ["other"]),
    (["consume", "orders", "--isolation", "read_c"], ["read_committed"]),
    (["produce", "orders", "x"], []),
    (["groups", "lag", ""], ["audit"]),
    (["groups", "reset-offsets", "audit", "--topic", "x"], ["x"]),
    (["broker", "stop", "0", ""], ["0", "1"]),
    (["broker", "restart", ""], ["0", "1"]),
    (["broker", "cut", "0", "--from", ""], ["0", "1"]),
    (["consume", "o"], ["orders", "other"]),
    (["consume", "--group", "a"], ["audit"]),
    (["consume", "x", "--partition", ""], ["0", "1", "2"]),
    (["why", "o"], ["orders-0"]),
    (["why", "x-0", ""], [FILES]),
    (["history", "timeline", "x"], ["x", "x-0"]),
    (["elect", ""], ["preferred", "unclean"]),
    (["elect", "preferred", "o"], ["orders-0"]),
    (["reassign", "plan", "--topics", "o"], ["orders", "other"]),
    (["reassign", "plan", "--topics=x,o"], ["--topics=x,orders", "--topics=x,other"]),
    (["reassign", "plan", "--broker-list", "0,"], ["0,0", "0,1"]),
    (["reassign", "execute", "--partition", "x"], ["x-0"]),
    (["txn", "producers", "orders", ""], ["0", "1", "2"]),
    (["whatif", "kill", ""], ["0", "1"]),
    (["whatif", "unclean", "o"], ["orders-0"]),
    (["configs", "describe", "--broker", ""], ["0", "1"]),
    (["history", "merge", "--topic", "x"], ["x"]),
    (["history", "merge", "--topic", "x", "--partitions", "0,"], ["0,0", "0,1", "0,2"]),
    (["users", "add", "u", "--mechanism", ""], ["SCRAM-SHA-256", "SCRAM-SHA-512"]),
    (["txn", "describe", ""], ["pay-1"]),
    (["profile", "use", ""], ["prod"]),
    (["topics", "list", "--profile", "p"], ["prod"]),
    (["produce", "orders", "--file", ""], [FILES]),
    (["dump-log", ""], [FILES]),
    (["completion", "b"], ["bash"]),
    (["topics", "create", "new"], []),
    (["pipeline", "la"], ["lake"]),
    (["help", ""], []),
]


@pytest.mark.parametrize(("words", "wanted"), CASES, ids=lambda w: " ".join(w)[:40])
def test_what_is_offered(words, wanted, offered):
    found, _ = offered(*words)
    assert [FILES if c.type == "file" else c.value for c in found] == wanted


NEW_NAMES = {("topics create", "NAME"), ("whatif add-brokers", "BROKER[:RACK]...")}
OF_A_CLUSTER = re.compile(r"TOPIC|GROUP|BROKER|PARTITION|--(topic|group|broker|partition)s?\b")


def shown(p):
    return max(p.names, key=len) if p.is_option else p.metavar


def test_whatever_names_something_of_a_cluster_is_completed():
    missing = {
        (name, shown(p))
        for name, command in every_command().items()
        for p in command.known
        if not p.is_flag
        if OF_A_CLUSTER.search(f"{shown(p)} {p.metavar}")
        and not p.kinds
        and not re.search("KEY|FILE|REGEX", p.metavar)
    }
    counts = {p for p in missing if p[1] in ("--partitions", "--brokers")}
    assert missing - NEW_NAMES - counts == set()


def test_names_are_asked_of_the_cluster_that_is_meant(offered):
    _, asked = offered("topics", "describe", "-b", "h:1", "--profile=p", "o")
    assert asked == [("topic", {"bootstrap_server": "h:1", "profile": "p"})]


def test_options_come_with_their_meaning(offered):
    found, _ = offered("consume", "--ta")
    assert found[0].help


def test_a_cluster_that_is_away_offers_nothing_and_says_nothing():
    done = subprocess.run(
        [sys.executable, "-m", "ottla"],
        env={**os.environ, grammar.COMPLETE: "bash_complete",
             "COMP_LINE": "ottla topics describe -b [::1]:1 "},
        capture_output=True, timeout=30, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.fixture
def ottla(tmp_path):
    """A folder with a program called ottla."""
    program = tmp_path / "ottla"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla "$@"\n')
    program.chmod(0o755)
    return tmp_path


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("ottla topi", ["topics"]),
        ("ottla topics describe --under-", ["--under-replicated", "--under-min-isr"]),
        ("ottla topics list --output ", ["table", "json", "tsv"]),
        ("ottla topics list --output=j", ["json"]),
    ],
)
def test_bash(ottla, line, wanted):
    code = (
        completion.script("bash")
        + f'COMP_LINE="{line}"; COMP_POINT=${{#COMP_LINE}}; _ottla_completion ottla; '
        + 'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    path = f"{ottla}:{Path('/usr/bin')}:/bin"
    done = subprocess.run(
        ["bash", "-c", code],
        capture_output=True, text=True, timeout=30, check=True,
        env={"PATH": path, "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert done.stdout.split() == wanted, done.stderr


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_takes_a_name_with_a_colon_and_a_blank_for_one(tmp_path):
    program = tmp_path / "ottla"
    program.write_text("#!/bin/sh\nprintf 'plain,team:one x\\n'\n")
    program.chmod(0o755)
    line = f"{program} groups lag team:o"
    code = (
        completion.script("bash")
        + f'COMP_LINE="{line}"; COMP_POINT=${{#COMP_LINE}}; _ottla_completion {program}; '
        + 'printf "%s\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "one\\ x\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_find_nothing_wrong_with_the_scripts(shell, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    file = tmp_path / "script"
    file.write_text(completion.script(shell))
    subprocess.run([shell, "-n", str(file)], check=True, timeout=30)


STARTS = {
    "bash": (["bash", "--norc", "-i"], "PS1='> '; source <(ottla completion bash)"),
    "zsh": (
        ["zsh", "-f", "-i"],
        "PS1='> '; autoload compinit; compinit -u; source <(ottla completion zsh)",
    ),
    "fish": (["fish", "--no-config", "-i"], "ottla completion fish | source"),
}
ERASE_LINE = "\x15"


@contextlib.contextmanager
def at_a_terminal(command, environment):
    """Run a shell at a terminal; yield what types a text and waits until others are shown."""
    pid, fd = pty.fork()
    if pid == 0:
        # So wide that no folder's name makes a line go on below: what is shown would be cut there.
        termios.tcsetwinsize(0, (50, 500))
        os.execvpe(command[0], command, environment)
    readable = select.poll()
    readable.register(fd, select.POLLIN)

    def typed(text, *shown):
        os.write(fd, text.encode())
        seen, until = "", time.monotonic() + 30
        while not all(s in seen for s in shown):
            assert time.monotonic() < until, (shown, seen)
            if readable.poll(100):  # select takes no descriptor above 1,023
                seen += os.read(fd, 65536).decode(errors="replace")

    try:
        yield typed
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(fd)


@pytest.mark.parametrize("shell", STARTS)
def test_a_person_at_a_terminal_presses_tab(ottla, shell, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    profiles = tmp_path / "profiles.toml"
    profiles.write_text('[profiles.staging]\ndir = "a"\n[profiles.production]\ndir = "b"\n')
    (tmp_path / "only-this-file").write_text("")
    command, begin = STARTS[shell]
    environment = {
        "PATH": f"{ottla}:/usr/bin:/bin",
        "PYTHONPATH": ":".join(sys.path),
        "HOME": str(tmp_path),
        "TERM": "dumb" if shell == "bash" else "xterm",
        "OTTLA_CONFIG": str(profiles),
    }
    with at_a_terminal(command, environment) as typed:
        typed(f"{begin}; echo rea''dy\n", "ready\r\n")
        typed("ottla topi\t", "topics")
        typed("describe --under-r\t", "eplicated" if shell == "fish" else "--under-replicated")
        typed(ERASE_LINE + "ottla topics de\t\t", "delete-records", "describe")
        typed(ERASE_LINE + "ottla profile use st\t", "aging" if shell == "fish" else "staging")
        typed(ERASE_LINE + "ottla topics list --output=j\t", "son" if shell == "fish" else "json")
        typed(ERASE_LINE + f"ottla dump-log {tmp_path}/only-th\t", "is-file")


def test_names_that_nobody_can_type_are_not_offered(offered, monkeypatch):
    monkeypatch.setitem(NAMES, "group", ["fine", "two\nlines", "\x1b[2J", "a b"])
    assert [c.value for c in offered("groups", "lag", "")[0]] == ["fine", "a b"]
