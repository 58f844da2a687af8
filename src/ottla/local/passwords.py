"""Passwords of a secured cluster: made here, kept in one file of the owner's.

Invariants: a password is 192 random bits and leaves this machine only hashed; it is in no argument,
no log line and no output; the file is replaced whole. Brokers have two names in turn: the new one
is in use on all of them before the former one goes.
"""

import secrets

import msgspec

from ottla.local.cluster_dir import ClusterDir
from ottla.local.private_files import replace_file
from ottla.model.errors import OttlaError

ADMIN, APPLICATION = "admin", "app"
BROKER_USERS = ("broker-a", "broker-b")
PASSWORD_BYTES = 24


class Passwords(msgspec.Struct):
    """All of passwords.json."""

    users: dict[str, str]
    zookeeper: str
    """Of brokers and of commands here at ZooKeeper."""
    broker_user: str = BROKER_USERS[0]
    """The name of brokers that start from now on."""

    @property
    def former_broker_user(self) -> str | None:
        """Return the name that brokers had before, while it is still in use."""
        other = self.other_broker_user
        return other if other in self.users else None

    @property
    def other_broker_user(self) -> str:
        return BROKER_USERS[1 - BROKER_USERS.index(self.broker_user)]


def new_password() -> str:
    """Return a random password: letters, digits, - and _, which no format has to escape."""
    return secrets.token_urlsafe(PASSWORD_BYTES)


def load_or_make(folder: ClusterDir) -> Passwords:
    """Return the passwords of a cluster; new ones if it has none yet."""
    file = folder.passwords_file
    try:
        known = msgspec.json.decode(file.read_bytes(), type=Passwords)
    except FileNotFoundError:
        users = {n: new_password() for n in (ADMIN, APPLICATION, BROKER_USERS[0])}
        made = Passwords(users, new_password())
        save(folder, made)
        return made
    except msgspec.DecodeError as error:
        raise OttlaError(f"{file} is damaged: {type(error).__name__}") from None
    except OSError as error:
        raise OttlaError(f"cannot read {file}: {error.strerror}") from error
    if known.broker_user not in BROKER_USERS or not known.users.keys() >= {
        ADMIN, APPLICATION, known.broker_user,
    }:  # fmt: skip
        raise OttlaError(f"{file} is damaged: it lacks a user")
    return known


def save(folder: ClusterDir, passwords: Passwords) -> None:
    """Replace the file."""
    data = msgspec.json.format(msgspec.json.encode(passwords), indent=2) + b"\n"
    replace_file(folder.passwords_file, data)
