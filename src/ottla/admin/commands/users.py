"""`ottla users`: SCRAM users and their passwords.

Invariant: a password is read from the terminal without echo, from standard input or from a file,
and never from the arguments, which others on the machine can see.
"""

import sys
from getpass import getpass
from typing import TYPE_CHECKING, Annotated

from ottla.admin.connection import Local, Target
from ottla.admin.connection import zookeeper as zookeeper_meant
from ottla.admin.options import Yes, ZooKeeperConfig, agreed, fail_for, needs_yes, read_input
from ottla.cli import Argument, Option, UsageError
from ottla.cli.output import print_changes, print_result, say

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.security.sasl.scram import ScramMechanism
    from ottla.zookeeper.session import Session

Name = Annotated[str, Argument(metavar="NAME")]
Mechanisms = Annotated[
    list[str] | None,
    Option(
        "--mechanism",
        metavar="SCRAM-SHA-256|SCRAM-SHA-512",
        help="Mechanism; repeatable [default: both]",
    ),
]
PasswordFile = Annotated[
    str | None,
    Option(
        "--password-file",
        metavar="FILE",
        help="Read the password, one line; - is standard input [default: ask]",
    ),
]


def _mechanisms(names: list[str] | None) -> "list[ScramMechanism]":
    from ottla.security.sasl.scram import BY_NAME

    unknown = [name for name in names or () if name.upper() not in BY_NAME]
    if unknown:
        raise UsageError(f"--mechanism {unknown[0]}: write {' or '.join(BY_NAME)}")
    wanted = dict.fromkeys(name.upper() for name in names or BY_NAME)
    return [BY_NAME[name] for name in wanted]


def _password(file: str | None, name: str) -> str:
    from ottla.admin.operations.input_files import MAX_PASSWORD_BYTES, parse_password

    if file is not None:
        return parse_password(*read_input(file, MAX_PASSWORD_BYTES))
    if not sys.stdin.isatty():
        raise UsageError("where is the password? Write --password-file FILE, or - for stdin")
    typed = getpass(f"Password of {name}: ")
    if typed != getpass("Once more: "):
        raise UsageError("the two passwords differ")
    return parse_password(typed.encode(), "the terminal")


def list_command(
    target: Target,
    names: Annotated[list[str] | None, Argument(metavar="[NAME]...")] = None,
) -> None:
    from ottla.client import scram_users

    problems: list[str] = []
    found = target.ask(lambda c: scram_users.describe(c, names or (), problems))
    rows = [
        (user.name, mechanism, iterations)
        for user in found
        for mechanism, iterations in user.credentials.items()
    ]
    print_result(target.output, found, ("user", "mechanism", "iterations"), rows)
    fail_for(problems)


def add(
    target: Target,
    name: Name,
    password_file: PasswordFile = None,
    mechanism: Mechanisms = None,
    iterations: Annotated[int, Option(help="Iterations of the hash, 4096 to 16384")] = 8192,
    zookeeper: Annotated[
        str | None,
        Option(
            metavar="HOST:PORT[/ROOT]",
            help="Write to ZooKeeper, for the first users before brokers run",
        ),
    ] = None,
    zookeeper_config: ZooKeeperConfig = None,
) -> None:
    from ottla.admin.results import UserResult
    from ottla.client import scram_users
    from ottla.local.first_users import put_in_zookeeper
    from ottla.local.zookeeper_session import asked
    from ottla.model.errors import OttlaError
    from ottla.security.sasl.scram import MAX_ITERATIONS, MIN_ITERATIONS

    mechanisms = _mechanisms(mechanism)
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise OttlaError(f"--iterations must be {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    if not name:
        raise UsageError("a user's name must not be empty")
    password = _password(password_file, name)

    async def into_zookeeper(session: "Session") -> None:
        await put_in_zookeeper(session, name, password, mechanisms, iterations)

    async def through_a_broker(client: "Client") -> None:
        await scram_users.put(client, name, password, mechanisms, iterations)

    if zookeeper is not None or zookeeper_config is not None:
        asked(zookeeper_meant(zookeeper, zookeeper_config, target.directory), into_zookeeper)
    else:
        target.ask(through_a_broker)
    names = " and ".join(m.sasl_name for m in mechanisms)
    say(f"user {name} has a password for {names}")
    print_changes(target.output, [UserResult(name, m.sasl_name, "set") for m in mechanisms])


def remove(
    target: Target,
    name: Name,
    mechanism: Mechanisms = None,
    yes: Yes = False,
) -> None:
    from ottla.admin.results import UserResult
    from ottla.client import scram_users

    wanted = _mechanisms(mechanism)
    needs_yes(yes, f"{name} could no longer connect")
    agreed(yes, f"Remove the passwords of {name}?", "nothing was removed")

    async def question(client: "Client") -> list[str]:
        (user,) = await scram_users.describe(client, [name])
        had = [m for m in wanted if m.sasl_name in user.credentials or mechanism]
        await scram_users.remove(client, name, had)
        return [m.sasl_name for m in had]

    removed = target.ask(question)
    say(f"user {name} no longer has a password for {' and '.join(removed)}")
    print_changes(target.output, [UserResult(name, mechanism, "removed") for mechanism in removed])


def rotate(
    local: Local,
    names: Annotated[
        list[str] | None,
        Argument(metavar="[NAME]...", help="admin, app, brokers; or only zookeeper"),
    ] = None,
    every: Annotated[bool, Option("--all", help="Rotate admin, app and brokers")] = False,
    timeout: Annotated[
        float,
        Option(
            metavar="SECONDS",
            help="Longest time to wait for each broker to be in sync [120]",
            min=1,
        ),
    ] = 120.0,
) -> None:
    from ottla.admin.results import Rotated
    from ottla.local import rotation

    wanted = list(dict.fromkeys(rotation.NAMES if every else names or ()))
    if bool(names) is every:
        raise UsageError("name users, or add --all")
    if wanted == [rotation.ZOOKEEPER]:
        rotation.rotate_stopped(local.folder)
        print_changes(local.output, [Rotated(rotation.ZOOKEEPER, "rotated")])
        say("brokers have a new password for ZooKeeper; start them with `ottla up`")
        return
    for name in wanted:
        if name not in rotation.NAMES:
            raise UsageError(
                f"{name} is none of {', '.join(rotation.NAMES)}, and zookeeper, which goes alone; "
                f"`ottla users add {name}` gives any other user a new password"
            )
    rotation.rotate(local.folder, wanted, timeout, say)
    print_changes(local.output, [Rotated(name, "rotated") for name in wanted])
