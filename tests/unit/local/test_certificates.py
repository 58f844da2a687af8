"""A CA of one's own: what it issues is checked by openssl, and no key is anybody else's to read."""

import datetime as dt
import shutil
import stat
import subprocess

import pytest
from cryptography import x509

from ottla.local.certificates import CertificateFolder
from ottla.model.errors import OttlaError

NOW = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)


def folder(path, days=0):
    return CertificateFolder(path, NOW + dt.timedelta(days=days))


@pytest.fixture
def made(tmp_path):
    found = folder(tmp_path / "certs")
    found.create_ca("Test CA")
    found.issue("broker-0", ["broker0.example", "10.0.0.7", "::1"])
    found.issue("alice")
    return found


def text(file):
    return subprocess.run(
        ["openssl", "x509", "-in", str(file), "-noout", "-text"],
        capture_output=True, text=True, check=True, timeout=20,
    ).stdout  # fmt: skip


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")
def test_openssl_trusts_what_was_issued(made):
    at = str(int(NOW.timestamp()) + 60)
    for name, purpose in (
        ("broker-0", "sslserver"),
        ("broker-0", "sslclient"),
        ("alice", "sslclient"),
    ):
        command = ["openssl", "verify", "-x509_strict", "-attime", at, "-purpose", purpose]
        done = subprocess.run(
            [*command, "-CAfile", str(made.ca_pem), str(made.pem(name))],
            capture_output=True, text=True, check=False, timeout=20,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    shown = text(made.pem("broker-0"))
    assert "DNS:broker0.example, IP Address:10.0.0.7, IP Address:0:0:0:0:0:0:0:1" in shown
    assert "CA:FALSE" in shown
    assert "pathlen:0" in text(made.ca_pem)
    wrong = subprocess.run(
        ["openssl", "verify", "-attime", at, "-purpose", "sslserver",
         "-CAfile", str(made.ca_pem), str(made.pem("alice"))],
        capture_output=True, check=False, timeout=20,
    )  # fmt: skip
    assert wrong.returncode != 0, "a client's certificate is no server's"


def test_private_keys_are_the_owners_alone(made):
    for file in (made.ca_key, made.pem("broker-0"), made.pem("alice")):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    made.rotate("alice")
    assert stat.S_IMODE(made.pem("alice").stat().st_mode) == 0o600
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o700
    assert sorted(p.name for p in made.path.iterdir()) == [
        "alice.pem", "broker-0.pem", "ca.key", "ca.pem",
    ]  # fmt: skip


def test_rotation_keeps_names_and_hosts_and_changes_the_key(made):
    before = x509.load_pem_x509_certificate(made.pem("broker-0").read_bytes())
    made.rotate("broker-0")
    after = x509.load_pem_x509_certificate(made.pem("broker-0").read_bytes())
    assert after.subject == before.subject
    assert made.hosts("broker-0") == ["broker0.example", "10.0.0.7", "::1"]
    assert after.public_key() != before.public_key()
    assert after.serial_number != before.serial_number


@pytest.mark.parametrize(
    ("days", "problem"), [(0, ""), (380, "expires soon"), (398, "has expired")]
)
def test_what_expires_is_said(made, days, problem):
    found = {s.name: s for s in folder(made.path, days).statuses()}
    assert found["alice"].problem == problem
    assert found["alice"].days == 397 - days
    assert found["ca"].problem == ""
    assert found["broker-0"].hosts == ("broker0.example", "10.0.0.7", "::1")


def test_other_problems_are_said(made, tmp_path):
    other = folder(tmp_path / "other")
    other.create_ca("Other CA")
    other.issue("mallory")
    shutil.copy(other.pem("mallory"), made.pem("mallory"))
    made.pem("alice").chmod(0o644)
    made.issue("broken")
    made.pem("broken").write_bytes(b"\x00")
    found = {s.name: s.problem for s in made.statuses()}
    assert found["broken"].endswith("has no readable certificate")
    assert found["mallory"] == "is not of this CA"
    assert "chmod 600" in found["alice"]


@pytest.mark.parametrize("name", ["", "ca", "../x", ".hidden", "a/b"])
def test_names_that_are_no_files(made, name):
    with pytest.raises(OttlaError, match="cannot name a certificate file"):
        made.issue(name)


def test_nothing_is_overwritten(made):
    with pytest.raises(OttlaError, match="exists"):
        made.create_ca("Test CA")
    with pytest.raises(OttlaError, match="certs rotate alice"):
        made.issue("alice")
    with pytest.raises(OttlaError, match="is not there; issue it first"):
        made.rotate("bob")


def test_without_a_ca(tmp_path):
    with pytest.raises(OttlaError, match="certs init"):
        folder(tmp_path).issue("alice")
