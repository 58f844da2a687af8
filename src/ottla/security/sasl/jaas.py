"""JAAS texts: which login module a mechanism has, and its options.

Invariants: a text that is not wholly understood is refused; no option's value is in an error. A
decider. Kafka: `JaasConfig`, which reads `Module required name="value" name=value;`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.model.errors import ConfigError

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
FLAGS = ("required", "requisite", "sufficient", "optional")

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<quoted>"(?:[^"\\]|\\.)*")
      | (?P<single>'(?:[^'\\]|\\.)*')
      | (?P<word>[^\s=;"']+)
      | (?P<sign>[=;])
    )""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b"}


@dataclass(frozen=True, slots=True)
class JaasModule:
    """A login module: its class and its options. Its text form has no option's value."""

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"JaasModule({self.name}, options {sorted(self.options)})"


def parse_jaas(key: str, text: str) -> JaasModule:
    """Return the one login module of a text; ConfigError names the key and what is wrong."""
    tokens = _tokens(key, text)
    if len(tokens) < 3:
        raise ConfigError(f"{key}: write a login module, required, its options and a semicolon")
    (name, name_is_word), (flag, _), *rest = tokens
    if not name_is_word or name in "=;":
        raise ConfigError(f"{key}: it must begin with the class of a login module")
    if flag.lower() not in FLAGS:
        raise ConfigError(f"{key}: after the login module write required")
    options: dict[str, str] = {}
    while rest and rest[0] != (";", False):
        if len(rest) < 3 or rest[1] != ("=", False) or rest[2] in ((";", False), ("=", False)):
            raise ConfigError(f'{key}: write each option as name="value", and a semicolon last')
        if rest[0][0] in options:
            raise ConfigError(f"{key}: option {rest[0][0]} stands twice")
        options[rest[0][0]] = rest[2][0]
        rest = rest[3:]
    if not rest:
        raise ConfigError(f"{key}: a semicolon must end the login module")
    if len(rest) > 1:
        raise ConfigError(f"{key}: one login module is expected, there is more after it")
    return JaasModule(name, options)


def _tokens(key: str, text: str) -> list[tuple[str, bool]]:
    """Return (text, whether it is a word or quoted), signs being neither."""
    found: list[tuple[str, bool]] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise ConfigError(f"{key}: a quotation mark is not closed")
        quoted = match["quoted"] or match["single"]
        if quoted is not None:
            found.append((_unescaped(quoted[1:-1]), True))
        elif match["word"] is not None:
            found.append((match["word"], True))
        else:
            found.append((match["sign"], False))
        position = match.end()
    return found


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), text, flags=re.DOTALL)


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
