"""Certificates: a private CA, and what it issues to brokers and clients.

A folder holds them: `ca.pem` and `ca.key`, and NAME.pem for each name, its private key first, then
its certificate. Such a file is a keystore of the type PEM for Java and for brokers, and certificate
and key for librdkafka and Python. Invariants: private keys are the owner's alone (0600) from their
first byte on; a file is replaced whole; the CA is never replaced here, for all that it issued would
be worthless.
"""

import datetime as dt
import ipaddress
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ottla.local.folders import PRIVATE, PUBLIC, replace_file
from ottla.model.errors import OttlaError, StartupError, of_system

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ModuleNotFoundError as error:
    raise StartupError(
        "certificates need cryptography, not installed here: pip install 'ottla[secure]'"
    ) from error

CA = "ca"
CA_DAYS, DAYS = 3650, 397
BACKDATED = dt.timedelta(minutes=5)
"""Clocks of other machines may be behind."""
SOON_DAYS = 30


@dataclass(frozen=True, slots=True)
class CertificateStatus:
    """One certificate of a folder. `days` left may be negative; `problem`: empty if it is fine.

    Of a file that cannot be read only the name and the problem are known.
    """

    name: str
    subject: str
    hosts: tuple[str, ...]
    expires: dt.datetime | None
    days: int | None
    problem: str


class CertificateFolder:
    """A CA and all it issued."""

    def __init__(self, path: Path, now: dt.datetime | None = None) -> None:
        self.path = path
        self.now = now or dt.datetime.now(dt.UTC)

    @property
    def ca_pem(self) -> Path:
        return self.path / f"{CA}.pem"

    @property
    def ca_key(self) -> Path:
        return self.path / f"{CA}.key"

    def pem(self, name: str) -> Path:
        """Return a name's file; OttlaError if it is not a file name."""
        if not name or name == CA or name.startswith(".") or "/" in name or "\0" in name:
            raise OttlaError(f"{name!r} cannot name a certificate file")
        return self.path / f"{name}.pem"

    def create_ca(self, name: str, days: int = CA_DAYS) -> None:
        """Make the folder's CA; OttlaError if it has one."""
        for file in (self.ca_pem, self.ca_key):
            if file.exists():
                raise OttlaError(
                    f"{file} exists; a new CA would invalidate every certificate issued so far"
                )
        if not self.path.exists():
            self.path.mkdir(mode=0o700, parents=True)
        key = _new_key()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        made = (
            self._builder(subject, subject, key.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(key, hashes.SHA256())
        )
        replace_file(self.ca_key, _key_bytes(key), PRIVATE)
        replace_file(self.ca_pem, made.public_bytes(Encoding.PEM), PUBLIC)

    def issue(self, name: str, hosts: Sequence[str] = (), days: int = DAYS) -> Path:
        """Issue a key and a certificate to CN=`name`, for these host names and addresses."""
        file = self.pem(name)
        if file.exists():
            raise OttlaError(f"{file} exists; `ottla certs rotate {name}` replaces it")
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._issue(file, subject, [_general_name(host) for host in hosts], days)
        return file

    def rotate(self, name: str, days: int = DAYS) -> Path:
        """Give a name a new key and certificate, with the subject and the hosts of the old one."""
        file = self.pem(name)
        old = self._certificate(file)
        self._issue(file, old.subject, list(_alternative_names(old)), days)
        return file

    def names(self) -> list[str]:
        """Return what was issued, without the CA."""
        if not self.path.is_dir():
            return []
        return sorted(p.stem for p in self.path.glob("*.pem") if p.stem != CA)

    def hosts(self, name: str) -> list[str]:
        """Return the host names and addresses of a certificate."""
        return [str(n.value) for n in _alternative_names(self._certificate(self.pem(name)))]

    def statuses(self) -> list[CertificateStatus]:
        """Return the CA and all it issued, what expires first at the top."""
        ca = self._certificate(self.ca_pem)
        found = [self._status(CA, self.ca_pem, ca, ca)]
        found += [self._status(name, self.pem(name), None, ca) for name in self.names()]
        return sorted(found, key=lambda status: status.expires or self.now)

    def _status(
        self, name: str, file: Path, known: x509.Certificate | None, ca: x509.Certificate
    ) -> CertificateStatus:
        try:
            certificate = known or self._certificate(file)
        except OttlaError as error:
            return CertificateStatus(name, "", (), None, None, str(error))
        expires = certificate.not_valid_after_utc
        days = (expires - self.now).days
        problem = ""
        if expires <= self.now:
            problem = "has expired"
        elif not _signed_by(certificate, ca):
            problem = "is not of this CA"
        elif days < SOON_DAYS:
            problem = "expires soon"
        private = self.ca_key if name == CA else file
        if private.exists() and stat.S_IMODE(private.stat().st_mode) & 0o077:
            problem = f"{problem}; " * bool(problem) + "its key can be read by others: chmod 600"
        hosts = tuple(str(n.value) for n in _alternative_names(certificate))
        subject = certificate.subject.rfc4514_string()
        return CertificateStatus(name, subject, hosts, expires, days, problem)

    def _issue(
        self, file: Path, subject: x509.Name, hosts: list[x509.GeneralName], days: int
    ) -> None:
        ca = self._certificate(self.ca_pem)
        ca_key = self._ca_private_key()
        key = _new_key()
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if hosts:  # brokers connect to each other: they are clients, too
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = (
            self._builder(subject, ca.subject, key.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(_issuer_key(ca), critical=False)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        made = builder.sign(ca_key, hashes.SHA256())
        replace_file(file, _key_bytes(key) + made.public_bytes(Encoding.PEM), PRIVATE)

    def _builder(
        self, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.now - BACKDATED)
            .not_valid_after(self.now + dt.timedelta(days=days))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )

    def _certificate(self, file: Path) -> x509.Certificate:
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            way_out = "`ottla certs init` makes a CA" if file == self.ca_pem else "issue it first"
            raise OttlaError(f"{file} is not there; {way_out}") from None
        except OSError as error:
            raise OttlaError(f"{file}: {of_system(error)}") from error
        try:
            return x509.load_pem_x509_certificate(data)
        except ValueError as error:
            raise OttlaError(f"{file} has no readable certificate") from error

    def _ca_private_key(self) -> CertificateIssuerPrivateKeyTypes:
        try:
            key = load_pem_private_key(self.ca_key.read_bytes(), None)
        except OSError as error:
            raise OttlaError(f"{self.ca_key}: {of_system(error)}; only the CA can issue") from error
        except (ValueError, TypeError) as error:
            raise OttlaError(f"{self.ca_key} has no readable key") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise OttlaError(f"{self.ca_key} is not a key made by `ottla certs init`")
        return key


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _issuer_key(ca: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    """Return what names the CA's key: strict clients (Python 3.13 on) want it."""
    key = ca.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise OttlaError("the CA's certificate was not made by `ottla certs init`")
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise OttlaError(f"{host!r} is not a host name or an address") from error


def _alternative_names(certificate: x509.Certificate) -> x509.SubjectAlternativeName:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return x509.SubjectAlternativeName([])
    return found.value


def _signed_by(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
