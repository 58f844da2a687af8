"""The console's page over TLS: a process, a real socket, and OpenSSL through Python's ssl."""

import http.client
import os
import socket
import ssl
import threading
import warnings

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from ottla.console.server import server_context
from ottla.local.certificates import CertificateFolder
from ottla.model.errors import ConfigError
from support.command_line import ottla
from support.console_process import served


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return Pki(tmp_path_factory.mktemp("pki"))


class Pki:
    """A CA, and files of what it issued; some that are no use."""

    def __init__(self, folder):
        self.folder = folder
        self.ca = trustme.CA()
        issued = self.ca.issue_cert("localhost", "127.0.0.1", "console.example")
        self.certificate = self.write(
            "cert.pem", b"".join(c.bytes() for c in issued.cert_chain_pems)
        )
        self.key = self.write("key.pem", issued.private_key_pem.bytes())
        self.both = self.write("both.pem", issued.private_key_and_cert_chain_pem.bytes())
        self.other_key = self.write(
            "other.pem", self.ca.issue_cert("localhost").private_key_pem.bytes()
        )
        rsa = self.ca.issue_cert("localhost", key_type=trustme.KeyType.RSA)
        self.rsa_key = self.write("rsa.pem", rsa.private_key_pem.bytes())
        self.text = self.write("text.pem", b"no certificate\n")
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        secret = BestAvailableEncryption(b"secret")
        self.encrypted = self.write(
            "pkcs8.pem", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret)
        )
        self.encrypted_as_before = self.write(
            "sec1.pem",
            key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, secret),
        )

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return path

    def trusting(self):
        context = ssl.create_default_context()
        self.ca.configure_trust(context)
        return context


# --- files ------------------------------------------------------------------------------------


def why(certificate, key):
    with pytest.raises(ConfigError) as raised:
        server_context(certificate, key)
    text = str(raised.value)
    assert "\n" not in text
    assert "secret" not in text
    return text


def test_files_that_are_no_use_are_one_line_each(pki):
    missing = pki.folder / "missing.pem"
    assert why(missing, pki.key) == f"--tls-certificate {missing}: No such file or directory"
    assert why(pki.certificate, missing) == f"--tls-key {missing}: No such file or directory"
    folder = pki.folder
    assert why(folder, pki.key) == f"--tls-certificate {folder}: the file is not readable"
    assert why(pki.certificate, folder) == f"--tls-key {folder}: the file is not readable"
    for text in (pki.text, pki.key):
        assert (
            why(text, pki.key)
            == f"--tls-certificate {text}: the file does not contain a PEM certificate"
        )
    for text in (pki.text, pki.certificate):
        assert why(pki.certificate, text).startswith(f"--tls-key {text}: OpenSSL rejects")
    for key in (pki.other_key, pki.rsa_key):
        said = f"--tls-key {key}: this is not the key of the first certificate in {pki.certificate}"
        assert why(pki.certificate, key) == said
    assert "not a valid file name" in why(pki.folder / "\0", pki.key)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_key_that_may_not_be_read(pki):
    closed = pki.write("closed.pem", pki.key.read_bytes())
    closed.chmod(0)
    assert "the file is not readable" in why(pki.certificate, closed)


def test_an_encrypted_key_is_refused_and_no_terminal_is_asked(pki):
    for key in (pki.encrypted, pki.encrypted_as_before):
        assert why(pki.certificate, key).startswith(f"--tls-key {key}: the key is encrypted")


def test_one_file_may_have_both(pki, tmp_path):
    assert server_context(pki.both, pki.both).minimum_version == ssl.TLSVersion.TLSv1_2
    certificates = CertificateFolder(tmp_path)  # as `ottla certs` writes them
    certificates.create_ca("Ottla CA")
    file = certificates.issue("console", ["localhost"])
    assert server_context(file, file)


# --- a handshake ------------------------------------------------------------------------------


def handshake(pki, low, high):
    """Return the version that a client of these versions and a server of ours agree on."""
    ours, theirs = socket.socketpair()
    context = server_context(pki.certificate, pki.key)

    def serve():
        try:
            context.wrap_socket(ours, server_side=True).close()
        except OSError:
            ours.close()

    server = threading.Thread(target=serve)
    server.start()
    try:
        client = client_of(pki, low, high)
        with client.wrap_socket(theirs, server_hostname="localhost") as connection:
            return connection.version()
    finally:
        theirs.close()
        server.join(10)


def client_of(pki, low, high):
    """Return the context of a client that would take these versions."""
    client = pki.trusting()
    client.set_ciphers("ALL:@SECLEVEL=0")  # else OpenSSL would refuse the old ones by itself
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        client.minimum_version, client.maximum_version = low, high
    return client


def test_tls_before_1_2_is_refused(pki):
    v = ssl.TLSVersion
    assert handshake(pki, v.TLSv1_2, v.TLSv1_2) == "TLSv1.2"
    assert handshake(pki, v.TLSv1_3, v.TLSv1_3) == "TLSv1.3"
    for old in (v.TLSv1, v.TLSv1_1):
        with pytest.raises(ssl.SSLError) as raised:
            handshake(pki, old, old)
        assert raised.value.reason == "TLSV1_ALERT_PROTOCOL_VERSION", "the server's alert"


# --- a process --------------------------------------------------------------------------------


@pytest.mark.processes
def test_the_page_over_https(pki):
    words = ("-b", "127.0.0.1:9", "--tls-certificate", pki.certificate, "--tls-key", pki.key)
    with served(*words, trusting=pki.trusting()) as console:
        assert console.link.startswith("https://localhost:")
        console.enter()
        name, *marks = console.set_cookie.split("; ")
        port = console.address.rpartition(":")[2]
        assert name.startswith(f"__Secure-ottla-console-{port}=")
        place = next(mark for mark in marks if mark.startswith("Path=/s/"))
        assert {mark.lower() for mark in marks if mark != place} == {
            "httponly", "samesite=strict", "secure"
        }  # fmt: skip
        status, text, headers = console.request("GET", "/")
        assert (status, "cannot reach 127.0.0.1:9" in text) == (200, True)
        assert headers["Strict-Transport-Security"] is None
        assert console.request("GET", "/", headers={"Host": "evil.example"})[0] == 421

        def sent_from(origin):
            fields = {"name": "g", "to": "latest", "value": ""}
            return console.request("POST", "/group/reset", fields, headers={"Origin": origin})[0]

        assert sent_from(f"http://{console.address}") == 403
        assert sent_from("https://localhost") == 403
        assert sent_from(f"https://{console.address}") == 502, "the cluster cannot be reached"
        plain_http_and_other_bytes(console, port)
        old, new = ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2
        with socket.create_connection(("127.0.0.1", int(port)), 30) as connection:
            with pytest.raises((ssl.SSLError, ConnectionResetError)):
                client_of(pki, old, old).wrap_socket(connection, server_hostname="localhost")
        with socket.create_connection(("127.0.0.1", int(port)), 30) as connection:
            client = client_of(pki, new, new)
            with client.wrap_socket(connection, server_hostname="localhost") as encrypted:
                assert encrypted.version() == "TLSv1.2"
        assert console.request("GET", "/")[0] == 200
        # A page that is updated live is open when the console ends.
        live = http.client.HTTPSConnection(console.address, timeout=30, context=pki.trusting())
        live.request("GET", "/live?of=overview", headers={"Cookie": console.cookie})
        response = live.getresponse()
        assert response.read(5) == b"event"
        # As a browser: it closes the connection when the stream has ended.
        reading = threading.Thread(target=lambda: (response.read(), live.close()))
        reading.start()
        assert console.end() == (0, "")
        reading.join(30)
        assert not reading.is_alive()


def plain_http_and_other_bytes(console, port):
    """What speaks no TLS gets none of the page: its connection ends."""
    request = f"GET / HTTP/1.1\r\nHost: {console.address}\r\nCookie: {console.cookie}\r\n\r\n"
    for data in (request.encode(), b"\x16\x03\x01\xff\xff" + b"x" * 70_000, b"\0" * 10):
        with socket.create_connection(("127.0.0.1", int(port)), 30) as connection:
            received = b""
            try:
                connection.sendall(data)  # it may end amid this
                while more := connection.recv(65_536):
                    received += more
            except (ConnectionResetError, BrokenPipeError):
                pass
            assert b"HTTP" not in received
    with socket.create_connection(("127.0.0.1", int(port)), 30) as connection:
        connection.sendall(b"\x16")  # and goes


@pytest.mark.processes
def test_both_options_or_none_and_what_is_said_of_other_addresses(pki):
    for words in (("--tls-certificate", pki.certificate), ("--tls-key", pki.key)):
        done = ottla("console", "-b", "127.0.0.1:9", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "--tls-certificate and --tls-key: give both, or none" in done.stderr
        assert done.stderr.count("\n") == 1
    words = ("--tls-certificate", pki.certificate, "--tls-key", pki.encrypted)
    done = ottla("console", "-b", "127.0.0.1:9", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "the key is encrypted" in done.stderr
    with served("-b", "127.0.0.1:9", "--host", "0.0.0.0") as console:
        _, said = console.end()
        assert "not encrypted" in said
        assert "--tls-certificate and --tls-key" in said
    words = ("--tls-certificate", pki.both, "--tls-key", pki.both, "--host", "0.0.0.0")
    with served("-b", "127.0.0.1:9", *words, "--allow-host", "console.example") as console:
        assert console.link.startswith("https://console.example:"), "a certificate is for names"
        assert console.end() == (0, "")
