"""`ottla users`: SCRAM users and their passwords.

Invariant: a password is read from the terminal without echo, from standard input or from a file,
and never from the arguments, which others on the machine can see.
"""

import sys
from getpass import getpass
from typing import Annotated, Any

from ottla.admin.arguments import Argument, Option, UsageError
from ottla.admin.connection import zookeeper as zookeeper_meant
from ottla.admin.options import (
    Bootstrap,
    Dir,
    Output,
    Yes,
    ZooKeeperConfig,
    agreed,
    ask,
    cluster_folder,
    fail_for,
    needs_yes,
    read_input,
)
from ottla.admin.output import (
    Format,
    print_results,
    print_structured,
    print_table,
    say,
    structured,
)

Name = Annotated[str, Argument(metavar="NAME")]
Mechanisms = Annotated[
    list[str] | None,
    Option(
        "--mechanism",
        metavar="SCRAM-SHA-256|SCRAM-SHA-512",
        help="May be repeated [default: both]",
    ),
]
PasswordFile = Annotated[
    str | None,
    Option(
        "--password-file",
        metavar="FILE",
        help="One line; - is standard input [default: asked for at the terminal]",
    ),
]


def _mechanisms(names: list[str] | None) -> list[Any]:
    from ottla.security.sasl.scram import BY_NAME

    unknown = [name for name in names or () if name.upper() not in BY_NAME]
    if unknown:
        raise UsageError(f"--mechanism {unknown[0]}: write {' or '.join(BY_NAME)}")
    wanted = dict.fromkeys(name.upper() for name in names or BY_NAME)
    return [BY_NAME[name] for name in wanted]


def _password(file: str | None, name: str) -> str:
    from ottla.admin.operations.scram_users import (
        MAX_PASSWORD_BYTES,
        parse_password,
    )

    if file is not None:
        return parse_password(*read_input(file, MAX_PASSWORD_BYTES))
    if not sys.stdin.isatty():
        raise UsageError("where is the password? Write --password-file FILE, or - for stdin")
    typed = getpass(f"Password of {name}: ")
    if typed != getpass("Once more: "):
        raise UsageError("the two passwords differ")
    return parse_password(typed.encode(), "the terminal")


def list_command(
    names: Annotated[list[str] | None, Argument(metavar="[NAME]...")] = None,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    """List users with SCRAM credentials.

    Example: ottla users list
    """
    from ottla.admin.operations import scram_users

    problems: list[str] = []
    found = ask(
        directory, bootstrap_server, lambda c: scram_users.describe(c, names or (), problems)
    )
    if structured(output):
        print_structured(output, found)
        fail_for(problems)
        return
    rows = [
        (user.name, mechanism, iterations)
        for user in found
        for mechanism, iterations in user.credentials.items()
    ]
    print_table(("user", "mechanism", "iterations"), rows)
    fail_for(problems)


def add(
    name: Name,
    password_file: PasswordFile = None,
    mechanism: Mechanisms = None,
    iterations: Annotated[int, Option(help="Of the hash: 4096 to 16384")] = 8192,
    zookeeper: Annotated[
        str | None,
        Option(
            metavar="HOST:PORT[/ROOT]",
            help="Write it into ZooKeeper: the first users, before brokers run",
        ),
    ] = None,
    zookeeper_config: ZooKeeperConfig = None,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    """Give a user a password; a user that exists gets a new one.

    Example: ottla users add alice --password-file alice.txt
    """
    from ottla.admin.operations import scram_users
    from ottla.local.first_users import put_in_zookeeper
    from ottla.local.zookeeper_session import asked

    mechanisms = _mechanisms(mechanism)
    scram_users.check_iterations(iterations)
    if not name:
        raise UsageError("a user's name must not be empty")
    password = _password(password_file, name)

    async def into_zookeeper(session: Any) -> None:
        await put_in_zookeeper(session, name, password, mechanisms, iterations)

    async def through_a_broker(client: Any) -> None:
        await scram_users.put(client, name, password, mechanisms, iterations)

    if zookeeper is not None or zookeeper_config is not None:
        asked(zookeeper_meant(zookeeper, zookeeper_config, directory), into_zookeeper)
    else:
        ask(directory, bootstrap_server, through_a_broker)
    names = " and ".join(m.sasl_name for m in mechanisms)
    say(f"user {name} has a password for {names}")
    print_results(output, [{"user": name, "mechanism": m.sasl_name, "result": "set"}
                           for m in mechanisms])  # fmt: skip


def remove(
    name: Name,
    mechanism: Mechanisms = None,
    yes: Yes = False,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    """Take a user's passwords away: it can connect no more.

    Example: ottla users remove alice --yes
    """
    from ottla.admin.operations import scram_users

    wanted = _mechanisms(mechanism)
    needs_yes(yes, f"{name} could connect no more")
    agreed(yes, f"Remove the passwords of {name}?", "nothing was removed")

    async def question(client: Any) -> list[str]:
        (user,) = await scram_users.describe(client, [name])
        had = [m for m in wanted if m.sasl_name in user.credentials or mechanism]
        await scram_users.remove(client, name, had)
        return [m.sasl_name for m in had]

    removed = ask(directory, bootstrap_server, question)
    say(f"user {name} has no password any more for {' and '.join(removed)}")
    print_results(output, [{"user": name, "mechanism": m, "result": "removed"} for m in removed])


def rotate(
    names: Annotated[
        list[str] | None,
        Argument(metavar="[NAME]...", help="admin, app, brokers; zookeeper: alone"),
    ] = None,
    every: Annotated[bool, Option("--all", help="admin, app and brokers")] = False,
    timeout: Annotated[
        float, Option(metavar="SECONDS", help="For brokers: for each to be in sync [120]", min=1)
    ] = 120.0,
    directory: Dir = None,
    output: Output = Format.table,
) -> None:
    """Give users of `ottla up --secure` new random passwords, and write them into their files.

    For `brokers` all of them are restarted one by one. Connections that are open go on. `zookeeper`
    is the brokers' password there; it is replaced while nothing runs.

    Example: ottla users rotate app
    """
    from ottla.local import rotation

    wanted = list(dict.fromkeys(rotation.NAMES if every else names or ()))
    if bool(names) is every:
        raise UsageError("name users, or add --all")
    if wanted == [rotation.ZOOKEEPER]:
        rotation.rotate_stopped(cluster_folder(directory))
        print_results(output, [{"user": rotation.ZOOKEEPER, "result": "rotated"}])
        say("brokers have a new password for ZooKeeper; start them with `ottla up`")
        return
    for name in wanted:
        if name not in rotation.NAMES:
            raise UsageError(
                f"{name} is none of {', '.join(rotation.NAMES)}, and zookeeper, which goes alone; "
                f"`ottla users add {name}` gives any other user a new password"
            )
    rotation.rotate(cluster_folder(directory), wanted, timeout, say)
    print_results(output, [{"user": name, "result": "rotated"} for name in wanted])
