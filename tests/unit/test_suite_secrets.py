"""The search for secrets in what tests leave behind finds what is planted, and nothing else."""

import base64
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from proofs import suite_secrets
from support.certificates import Authority

WORDS = [b"alice-secret", b"planted-secret"]


@pytest.fixture
def left(tmp_path):
    """Make what a test leaves: settings with a password, a key, its certificate, a log."""
    (tmp_path / "broker-0.properties").write_text('user_alice="alice-secret"\n')
    identity = Authority(tmp_path / "ca").issue("broker-0")
    (tmp_path / "broker-0.out").write_text("INFO started\n" + identity.chain.read_text())
    return tmp_path, identity


def test_nothing_is_found_where_all_is_in_its_place(left):
    folder, _ = left
    files, lines, found = suite_secrets.leaks(folder, WORDS)
    assert files > 3
    assert lines > 0
    assert found == []


def test_a_planted_password_and_a_part_of_a_key_are_found(left, monkeypatch):
    folder, identity = left
    monkeypatch.setattr(suite_secrets, "PIECE", 64)
    key = identity.key.read_text().splitlines()[2]
    with (folder / "broker-0.out").open("a") as log:
        log.write(f"{'x' * 100}planted-secret\n" + f"DEBUG key={key}\n")
        log.write("sasl token " + base64.b64encode(b"\0alice\0alice-secret").decode() + "\n")
    _, _, found = suite_secrets.leaks(folder, WORDS)
    assert found == [
        f"{folder / 'broker-0.out'}: 'alice-secret'",
        f"{folder / 'broker-0.out'}: 'planted-secret'",
        f"{folder / 'broker-0.out'}: part of a private key",
    ]


def test_the_passwords_of_the_tests_are_known():
    assert set(WORDS) < set(suite_secrets.passwords())
