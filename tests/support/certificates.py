"""Certificates for tests, by trustme: a library that knows nothing of ours."""

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


@dataclass(frozen=True)
class Identity:
    """A key with its certificate, in one PEM file, and apart."""

    pem: Path
    key: Path
    chain: Path


class Authority:
    """A CA that writes what it issues into a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.name = name
        self.ca = trustme.CA(organization_name=name)
        self.pem = folder / f"{name}.pem"
        self.ca.cert_pem.write_to_path(str(self.pem))

    def issue(self, name: str, *hosts: str, **more: object) -> Identity:
        """Issue a certificate for hosts; `common_name`, `not_after` and others as trustme has."""
        more = {"organization_unit_name": "tests", **more}  # or it is another one each time
        made = self.ca.issue_cert(*(hosts or ("127.0.0.1", "localhost")), **more)  # type: ignore[arg-type]
        files = Identity(*(self.folder / f"{name}{end}" for end in (".pem", ".key", ".crt")))
        # Java reads keys in PKCS#8 only.
        key = load_pem_private_key(made.private_key_pem.bytes(), None).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        chain = b"".join(blob.bytes() for blob in made.cert_chain_pems)
        files.key.write_bytes(key)
        files.chain.write_bytes(chain)
        files.pem.write_bytes(key + chain)
        for private in (files.key, files.pem):
            private.chmod(0o600)
        return files

    def server(self, identity: Identity, **more: str) -> dict[str, str]:
        """Return a broker's settings for a listener with this certificate."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(identity.pem),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.pem),
            **{key.replace("_", "."): value for key, value in more.items()},
        }


def tls_properties(files: Path, **changes: str | None) -> dict[str, str]:
    """Return settings that work, but for the changes (None: left out; _ for dots)."""
    base: dict[str, str | None] = {
        "broker.id": "1",
        "zookeeper.connect": "127.0.0.1:1",
        "listeners": "SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"{files}/good.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{files}/ca.pem",
    }
    for key, value in changes.items():
        base[key.replace("_", ".")] = value.format(files) if value is not None else None
    return {key: value for key, value in base.items() if value is not None}
