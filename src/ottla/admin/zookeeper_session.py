"""A ZooKeeper session for one question of a command.

Who may call: commands and the local cluster. Invariants: the session is closed whatever happens;
what ends a command (Ctrl-C, SIGTERM) ends it in order.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ottla.admin.process import ended_in_order
from ottla.admin.session import world
from ottla.net import runtime
from ottla.zookeeper.session import Session

T = TypeVar("T")

SESSION_TIMEOUT_MS = 10_000
CONNECT_TIMEOUT_MS = 5_000


def asked(address: str, question: Callable[[Session], Awaitable[T]]) -> T:
    """Put a question to ZooKeeper, in a session of its own."""

    async def conversation() -> T:
        session = await Session.connect(world(), address, SESSION_TIMEOUT_MS, CONNECT_TIMEOUT_MS)
        try:
            return await question(session)
        finally:
            await session.close()

    with ended_in_order():
        return runtime.run(conversation)
