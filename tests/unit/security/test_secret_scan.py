"""The search for secrets finds each that was planted, in each form, and nothing where none is."""

import base64
import json
import subprocess
import sys
import urllib.parse

import pytest

from support import secret_scan
from support.certificates import Authority
from support.secret_scan import Secrets, leaks, process_leaks
from support.waiting import until

PASSWORD = 'planted "pass/word" é'


@pytest.mark.parametrize(
    "written",
    [
        PASSWORD,
        f"x{PASSWORD}y",
        base64.b64encode(PASSWORD.encode()).decode(),
        base64.urlsafe_b64encode(PASSWORD.encode()).decode(),
        *(
            base64.b64encode(f"{'user:'[:n]}{PASSWORD} and more".encode()).decode()
            for n in range(6)
        ),
        PASSWORD.encode().hex(),
        json.dumps({"password": PASSWORD}),
        urllib.parse.quote(PASSWORD, safe=""),
    ],
)
def test_a_planted_password_is_found_in_each_form(tmp_path, written):
    secrets = Secrets({"alice's password": PASSWORD})
    folder = tmp_path / "logs"
    (folder / "deep").mkdir(parents=True)
    (folder / "clean.log").write_text("INFO alice connected mechanism=PLAIN\n")
    assert leaks(secrets, folder) == []
    bad = folder / "deep" / "broker.out"
    bad.write_text(f"DEBUG config {written} done\n")
    assert leaks(secrets, folder) == [f"{bad}: alice's password"]
    assert leaks(secrets, folder, [bad]) == []


def test_a_private_key_is_found_by_any_of_its_lines(tmp_path):
    first, second = (Authority(tmp_path / name).issue("broker") for name in ("a", "b"))
    secrets = Secrets({})
    secrets.add_private_key(first.key)
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "certificate").write_bytes(first.chain.read_bytes() + second.key.read_bytes())
    assert leaks(secrets, logs) == []
    for line in first.key.read_text().splitlines()[2:-2]:
        (logs / "log").write_text(f"loaded {line}\n")
        assert leaks(secrets, logs) == [f"{logs / 'log'}: private key of broker.key"]


def test_arguments_of_processes_are_read(tmp_path):
    secrets = Secrets({"token": "planted-token-of-a-process"})
    code = "import sys; sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, "--token=planted-token-of-a-process"], stdin=subprocess.PIPE
    ) as process:
        # It has no arguments for a moment, while it is being replaced by the program.
        expected = [f"process {process.pid}: token"]
        until(lambda: process_leaks(secrets) == expected, 20, "its arguments are seen")
        process.stdin.close()
        process.wait(20)
    assert process_leaks(secrets) == []


def test_znodes_of_users_may_have_them_and_no_others(monkeypatch):
    keys = "stored_key=c3RvcmVkLWtleS0=,server_key=c2VydmVyLWtleQ=="
    scram = f"salt=c2FsdHNhbHRzYWx0,{keys},iterations=4096"
    user = ("/config/users/alice", json.dumps({"config": {"SCRAM-SHA-512": scram}}).encode())
    held = [("/", b""), ("/config/users", b""), user]
    monkeypatch.setattr(secret_scan, "znodes", lambda _: held)
    secrets = Secrets({"password": PASSWORD})
    secrets.add_scram("z:1")
    assert secret_scan.znode_leaks(secrets, "z:1") == []
    held.append(("/config/brokers/1", b'{"config":{"x":"c3RvcmVkLWtleS0="}}'))
    held.append((f"/{PASSWORD}", b""))
    assert secret_scan.znode_leaks(secrets, "z:1") == [
        "znode /config/brokers/1: SCRAM-SHA-512 stored_key of /config/users/alice",
        f"znode /{PASSWORD}: password",
    ]


def test_what_is_too_short_is_refused():
    with pytest.raises(AssertionError, match="too short"):
        Secrets({"password": "short"})
