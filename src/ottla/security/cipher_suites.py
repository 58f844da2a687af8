"""Cipher suites: Java's names (ssl.cipher.suites), as OpenSSL has them.

Pure. Only suites with forward secrecy and authenticated encryption, and those with CBC and SHA-2
that older clients need: what is not listed is refused.
"""

TLS13_SUITES = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
)

_EXCHANGES = ("ECDHE_ECDSA", "ECDHE_RSA", "DHE_RSA")
_CIPHERS = {
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA384": "AES256-SHA384",
}

OPENSSL_NAMES = {
    f"TLS_{exchange}_WITH_{cipher}": f"{exchange.replace('_', '-')}-{name}"
    for exchange in _EXCHANGES
    for cipher, name in _CIPHERS.items()
    if exchange != "DHE_RSA" or cipher != "AES_256_CBC_SHA384"
} | {"TLS_DHE_RSA_WITH_AES_256_CBC_SHA256": "DHE-RSA-AES256-SHA256"}


def openssl_name(name: str) -> str | None:
    """Return OpenSSL's name of a suite of TLS 1.2, None for one that is not offered here."""
    return OPENSSL_NAMES.get(name)
