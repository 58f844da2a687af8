"""Profiles: clusters by name, in a TOML file of the user.

The file is $OTTLA_CONFIG, or config.toml in $XDG_CONFIG_HOME/ottla (~/.config/ottla). Invariants:
what cannot be read is one line with the file's name; a write replaces the file at once or not at
all.
"""

import json
import os
import re
from pathlib import Path
from typing import NamedTuple

from ottla.model.durable_files import replace_file
from ottla.model.errors import OttlaError

_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}", re.ASCII)
_KEYS = ("bootstrap-servers", "dir", "command-config")


class Profile(NamedTuple):
    """One cluster: an address, or the folder of `ottla up`; and a file of client settings."""

    bootstrap_servers: str | None = None
    dir: str | None = None
    command_config: str | None = None


class Profiles(NamedTuple):
    """All profiles, and which one is used where nothing else is said."""

    current: str | None
    by_name: dict[str, Profile]

    def find(self, name: str) -> Profile:
        """Return a profile; OttlaError for one that is not there."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise OttlaError(f"there is no profile {name} in {path()}; there are: {known}")
        return self.by_name[name]


def path() -> Path:
    """Return where the profiles are kept."""
    chosen = os.environ.get("OTTLA_CONFIG")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "ottla" / "config.toml"


def load() -> Profiles:
    """Read the file; no file is no profiles. OttlaError says what is wrong with it."""
    file = path()
    try:
        text = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return Profiles(None, {})
    import tomllib  # only where there is such a file

    try:
        found = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OttlaError(f"{file}: {error}") from None
    current, by_name = found.pop("current", None), found.pop("profiles", {})
    for key in found:
        raise OttlaError(f"{file}: there is no key {key}; write current and [profiles.NAME]")
    if not isinstance(by_name, dict) or not all(isinstance(p, dict) for p in by_name.values()):
        raise OttlaError(f"{file}: write each profile as [profiles.NAME]")
    profiles = Profiles(current, {name: _profile(file, name, p) for name, p in by_name.items()})
    if current is not None and current not in by_name:
        raise OttlaError(f"{file}: current = {current!r}, but there is no such profile")
    return profiles


def _profile(file: Path, name: str, fields: dict[str, object]) -> Profile:
    for key, value in fields.items():
        if key not in _KEYS or not isinstance(value, str):
            raise OttlaError(f"{file}: profile {name}: {key}: there are {', '.join(_KEYS)}, texts")
    texts = {key.replace("-", "_"): str(value) for key, value in fields.items()}
    if texts.get("bootstrap_servers") and texts.get("dir"):
        raise OttlaError(f"{file}: profile {name}: bootstrap-servers or dir, one of both")
    return Profile(**texts)


def _as_toml(value: str) -> str:
    """Return a text as TOML writes it: as JSON, but for DEL, and no character in two halves."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def save(profiles: Profiles) -> None:
    """Write the file anew."""
    lines = [] if profiles.current is None else [f"current = {_as_toml(profiles.current)}", ""]
    for name, profile in sorted(profiles.by_name.items()):
        lines.append(f"[profiles.{name}]")
        lines += [
            f"{key} = {_as_toml(value)}"
            for key, value in zip(_KEYS, profile, strict=True)
            if value is not None
        ]
        lines.append("")
    file = path()
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        data = "\n".join(lines).encode()
    except UnicodeEncodeError:
        raise OttlaError(f"{file}: a profile cannot name a file that is not UTF-8") from None
    replace_file(file, data)


def check_name(name: str) -> str:
    """Return a name that a profile may have; ValueError for another."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r}: use letters, digits, - and _")
    return name
