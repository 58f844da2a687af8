"""SCRAM users: who has credentials, and how they are set, with any Kafka, ours or of the JVM.

Invariants: a password never leaves this process: a broker gets the salted password, as from Kafka's
AdminClient. Kafka: the SCRAM half of `ConfigCommand` (KIP-554).
"""

import re
import secrets
from collections.abc import Collection

import msgspec

from ottla.admin.operations.configs import reason
from ottla.local.first_users import SALT_BYTES
from ottla.model.errors import OttlaError
from ottla.net.client import CONTROLLER, Client
from ottla.security.sasl.scram import (
    BY_NUMBER,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramMechanism,
)
from ottla.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ottla.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)

MAX_PASSWORD_BYTES = 1024


class User(msgspec.Struct, frozen=True):
    """A user, and the iterations of each of its credentials by the name of the mechanism."""

    name: str
    credentials: dict[str, int]


def parse_password(data: bytes, where: str) -> str:
    """Return the first line; OttlaError, never with what was read."""
    if len(data) > MAX_PASSWORD_BYTES:
        raise OttlaError(f"{where}: more than {MAX_PASSWORD_BYTES} bytes are no password")
    try:
        lines = re.split(r"\r\n|\r|\n", data.decode())
    except UnicodeDecodeError:
        raise OttlaError(f"{where}: a password must be UTF-8") from None
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    if not lines[0]:
        raise OttlaError(f"{where}: the password is empty")
    if len(lines) > 1:
        raise OttlaError(f"{where}: a password is one line")
    return lines[0]


def check_iterations(iterations: int) -> None:
    """Raise OttlaError for a number that brokers refuse."""
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise OttlaError(f"--iterations must be {MIN_ITERATIONS} to {MAX_ITERATIONS}")


async def describe(
    client: Client, names: Collection[str] = (), problems: list[str] | None = None
) -> list[User]:
    """Return these users, or all.

    A user without credentials becomes a line of `problems`; OttlaError for None.
    """
    request = DescribeUserScramCredentialsRequest(
        users=[DescribeUserScramCredentialsRequest.UserName(name=n) for n in names] or None
    )
    response = await client.call(request)
    if response.error_code:
        raise OttlaError(f"users: {reason(response.error_code, response.error_message)}")
    found = []
    for result in response.results:
        if result.error_code:
            problem = f"user {result.user}: {reason(result.error_code, result.error_message)}"
            if problems is None:
                raise OttlaError(problem)
            problems.append(problem)
            continue
        infos = {
            BY_NUMBER[i.mechanism].sasl_name: i.iterations
            for i in result.credential_infos
            if i.mechanism in BY_NUMBER
        }
        found.append(User(result.user, infos))
    return sorted(found, key=lambda user: user.name)


async def put(
    client: Client,
    name: str,
    password: str,
    mechanisms: Collection[ScramMechanism],
    iterations: int,
) -> None:
    """Give a user a password for these mechanisms; OttlaError."""
    r = AlterUserScramCredentialsRequest
    upsertions = []
    for mechanism in mechanisms:
        salt = secrets.token_bytes(SALT_BYTES)
        salted = mechanism.salted_password(password, salt, iterations)
        upsertions.append(
            r.ScramCredentialUpsertion(
                name=name,
                mechanism=mechanism.number,
                iterations=iterations,
                salt=salt,
                salted_password=salted,
            )
        )
    await _alter(client, r(upsertions=upsertions))


async def remove(client: Client, name: str, mechanisms: Collection[ScramMechanism]) -> None:
    """Take a user's credentials of these mechanisms away; OttlaError."""
    r = AlterUserScramCredentialsRequest
    deletions = [r.ScramCredentialDeletion(name=name, mechanism=m.number) for m in mechanisms]
    await _alter(client, r(deletions=deletions))


async def _alter(client: Client, request: AlterUserScramCredentialsRequest) -> None:
    response = await client.call(request, CONTROLLER)
    for result in response.results:
        if result.error_code:
            raise OttlaError(
                f"user {result.user}: {reason(result.error_code, result.error_message)}"
            )
