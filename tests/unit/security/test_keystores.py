"""Keystores of all kinds, made by others: keytool (JKS, PKCS#12), openssl, trustme (PEM)."""

import shutil
import subprocess
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from ottla.log.files import OsFiles
from ottla.model.errors import ConfigError
from ottla.security.keystores import key_material, store_bytes, trusted_certificates
from ottla.security.tls import TlsEndpoint
from ottla.security.tls_settings import StoreSettings, tls_settings

STORE, KEY = "storepass", "keypass1"
JAVA = Path(__file__).parents[2] / "vectors" / "keystores"
"""By Java 17's keytool: a key in JKS with a password of its own, and in PKCS#12; its certificate.

For KIND, KEY in JKS, keypass1 and PKCS12, storepass, always with `-storepass storepass`:
`keytool -genkeypair -alias broker -keyalg RSA -keysize 2048 -dname "CN=broker, OU=x, O=y"
-ext san=ip:127.0.0.1 -validity 30000 -storetype KIND -keystore KIND.store -keypass KEY`;
`keytool -exportcert -rfc -alias broker -keystore KIND.store -file KIND.crt`; and into KIND.trust
`keytool -importcert -noprompt`, as alias `one` JKS.crt, as `two` KIND.crt.
"""
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)


def store(kind, location, password=STORE, **more):
    return StoreSettings("ssl.keystore.", kind, str(location), password, **more)


def loaded(settings):
    return key_material(settings, store_bytes(settings, OsFiles().read_bytes))


def trusted(settings):
    return trusted_certificates(settings, store_bytes(settings, OsFiles().read_bytes))


def fits(material, certificate_file):
    expected = x509.load_pem_x509_certificate(certificate_file.read_bytes())
    key = load_pem_private_key(material.key, None)
    return material.chain[0] == expected and key.public_key() == expected.public_key()


@pytest.mark.parametrize("said", ["JKS", "PKCS12"])
def test_stores_of_keytool(said):
    """Java reads PKCS#12 under the type JKS, too, and the other way round."""
    assert fits(loaded(store(said, JAVA / "JKS.store", key_password=KEY)), JAVA / "JKS.crt")
    assert fits(loaded(store(said, JAVA / "PKCS12.store")), JAVA / "PKCS12.crt")
    assert trusted(store(said, JAVA / "JKS.trust"))
    both = {c.subject for c in trusted(store(said, JAVA / "PKCS12.trust"))}
    assert len(both) == 1


def test_a_jks_truststore_needs_no_password():
    assert trusted(store("JKS", JAVA / "JKS.trust", None))


@pytest.mark.parametrize(
    ("file", "password", "more", "words"),
    [
        ("JKS.store", "wrong", {}, r"ssl\.keystore\.password is wrong"),
        ("JKS.store", STORE, {}, r"ssl\.key\.password is wrong"),
        ("JKS.store", STORE, {"key_password": "wrong"}, r"ssl\.key\.password is wrong"),
        ("PKCS12.store", "wrong", {}, r"ssl\.keystore\.password is wrong"),
        ("PKCS12.trust", STORE, {}, "has no private key"),
        ("JKS.trust", STORE, {}, "has no private key"),
        ("JKS.crt", STORE, {}, r"is PEM; set ssl\.keystore\.type=PEM"),
        ("nothing", STORE, {}, "No such file"),
    ],
)
def test_what_is_wrong_is_one_line_without_the_password(file, password, more, words):
    with pytest.raises(ConfigError, match=words) as caught:
        loaded(store("JKS", JAVA / file, password, **more))
    text = str(caught.value)
    assert "\n" not in text
    assert file in text
    for secret in (STORE, KEY, "wrong,"):
        assert secret not in text


def test_a_damaged_store_is_said(tmp_path):
    for name in ("JKS.store", "PKCS12.store"):
        data = bytearray((JAVA / name).read_bytes())
        data[len(data) // 2] ^= 0xFF
        file = tmp_path / name
        file.write_bytes(data)
        with pytest.raises(ConfigError):
            loaded(store("JKS", file))
        file.write_bytes(data[:100])
        with pytest.raises(ConfigError):
            loaded(store("JKS", file))
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(ConfigError, match="no keystore of JKS or PKCS"):
        loaded(store("JKS", tmp_path / "empty"))


@needs_openssl
@pytest.mark.parametrize("legacy", [False, True])
def test_pkcs12_of_openssl(tmp_path, legacy):
    key, crt, p12 = (tmp_path / name for name in ("k.pem", "c.pem", "s.p12"))
    openssl(
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(crt),
        "-subj", "/CN=x", "-days", "2",
    )  # fmt: skip
    command = ["pkcs12", "-export", "-inkey", str(key), "-in", str(crt), "-out", str(p12)]
    openssl(*command, "-passout", f"pass:{STORE}", *(["-legacy"] if legacy else []))
    assert fits(loaded(store("PKCS12", p12)), crt)


def issued(tmp_path, name="x"):
    ca = trustme.CA()
    made = ca.issue_cert("127.0.0.1", common_name=name)
    key = load_pem_private_key(made.private_key_pem.bytes(), None)
    return ca, made, key


def pem(key, password=None):
    how = BestAvailableEncryption(password.encode())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how).decode()


@pytest.mark.parametrize("form", ["lines", "one line", "crlf", "text around"])
def test_inline_pem_with_an_encrypted_key(tmp_path, form):
    ca, made, key = issued(tmp_path)
    chain = made.cert_chain_pems[0].bytes().decode()
    text = pem(key, KEY)
    if form == "one line":
        text, chain = (t.replace("\n", " ") for t in (text, chain))
    if form == "crlf":
        text, chain = (t.replace("\n", "\r\n") for t in (text, chain))
    if form == "text around":
        chain = f"subject=CN = x\n{chain}\nissuer=..."
    found = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": text,
        "ssl.keystore.certificate.chain": chain,
        "ssl.key.password": KEY,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": ca.cert_pem.bytes().decode(),
    }
    settings = tls_settings(lambda k: found.get(k, ""))
    assert TlsEndpoint(settings, OsFiles().read_bytes, server=True).own is not None
    found["ssl.key.password"] = "wrong"
    with pytest.raises(ConfigError, match=r"ssl\.key\.password is wrong"):
        TlsEndpoint(tls_settings(lambda k: found.get(k, "")), OsFiles().read_bytes, server=True)
    del found["ssl.key.password"]
    with pytest.raises(ConfigError, match=r"encrypted; set ssl\.key\.password"):
        TlsEndpoint(tls_settings(lambda k: found.get(k, "")), OsFiles().read_bytes, server=True)


def test_a_key_of_another_certificate(tmp_path):
    _, made, _ = issued(tmp_path)
    _, other, _ = issued(tmp_path)
    file = tmp_path / "mixed.pem"
    file.write_bytes(other.private_key_pem.bytes() + made.cert_chain_pems[0].bytes())
    with pytest.raises(ConfigError, match="does not fit the certificate of CN=x"):
        loaded(store("PEM", file, None))


def test_the_chain_may_come_in_any_order(tmp_path):
    """The certificate of the key is shown first, wherever it stands."""
    root = trustme.CA()
    middle = root.create_child_ca()
    made = middle.issue_cert("127.0.0.1")
    file = tmp_path / "chain.pem"
    parts = [blob.bytes() for blob in made.cert_chain_pems]
    file.write_bytes(b"".join(reversed(parts)) + made.private_key_pem.bytes())
    material = loaded(store("PEM", file, None))
    assert material.chain[0] == x509.load_pem_x509_certificate(parts[0])
    assert len(material.chain) == len(parts)
