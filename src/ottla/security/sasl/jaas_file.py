"""JAAS files: the users of ZooKeeper's clients and servers, as Java reads them.

Invariants: a file that is not wholly understood is refused, with its name; no option's value is in
an error. A decider. Java: `java.security.auth.login.config`; ZooKeeper: `DigestLoginModule`.

    Client {
        org.apache.zookeeper.server.auth.DigestLoginModule required
        username="kafka"
        password="...";
    };
"""

import re

from ottla.model.errors import ConfigError
from ottla.security.sasl.jaas import JaasModule, parse_jaas

DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
MAX_BYTES = 65_536
_PIECE = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<quoted>"(?:[^"\\]|\\.)*")
      | (?P<brace>[{}])
      | (?P<other>[^"{}/]+|/(?![/*]))""",
    re.VERBOSE | re.DOTALL,
)
_USER = "user_"


def parse_jaas_file(where: str, text: str) -> dict[str, JaasModule]:
    """Return the login module of each section; ConfigError. `where`: what the file is called."""
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{where}: more than {MAX_BYTES} bytes are no JAAS file")
    found: dict[str, JaasModule] = {}
    section, part = "", ""
    position = 0
    while position < len(text):
        piece = _PIECE.match(text, position)
        if piece is None:
            raise ConfigError(f"{where}: a quotation mark or a comment is not closed")
        position = piece.end()
        if piece["comment"]:
            part += " "
        elif piece["brace"] == "{":
            name = part.strip().removeprefix(";").strip()
            if section or not name or not re.fullmatch(r"[\w.$-]+", name):
                raise ConfigError(f"{where}: write each section as Name {{ ... }};")
            if name in found:
                raise ConfigError(f"{where}: section {name} stands twice")
            section, part = name, ""
        elif piece["brace"] == "}":
            if not section:
                raise ConfigError(f"{where}: a section is closed that was not opened")
            if "${" in part:
                raise ConfigError(f"{where}: section {section}: ${{...}} is not replaced here")
            found[section] = parse_jaas(f"{where}: section {section}", part)
            section, part = "", ""
        else:
            part += piece[0]
    if section or part.strip() not in ("", ";"):
        raise ConfigError(f"{where}: write each section as Name {{ ... }};")
    return found


def digest_section(where: str, text: str, section: str) -> JaasModule:
    """Return the login module of a section; ConfigError if it is missing, or not DIGEST-MD5's."""
    found = parse_jaas_file(where, text)
    if section not in found:
        known = ", ".join(sorted(found)) or "none"
        raise ConfigError(f"{where} has no section {section}; there are: {known}")
    module = found[section]
    if module.name != DIGEST_MODULE:
        raise ConfigError(
            f"{where}: section {section} has the login module {module.name}, which cannot run here "
            f"(Kerberos is not served); with ZooKeeper only {DIGEST_MODULE} does"
        )
    return module


def client_of(where: str, text: str, section: str) -> tuple[str, str]:
    """Return user and password of a client's section; ConfigError."""
    options = digest_section(where, text, section).options
    user, password = options.get("username"), options.get("password")
    if not user or not password:
        raise ConfigError(f"{where}: section {section} lacks username or password")
    return user, password


def users_of(where: str, text: str, section: str) -> dict[str, str]:
    """Return the passwords of a server's section by user; ConfigError."""
    options = digest_section(where, text, section).options
    found = {k.removeprefix(_USER): v for k, v in options.items() if k.startswith(_USER)}
    found.pop("", None)
    if not found:
        raise ConfigError(f'{where}: section {section} names no user: write user_NAME="password"')
    return found
