"""Notifications: sequential znodes below one parent, each of which names something that changed.

Invariants: a notification carries no facts, only what to read again; one that cannot be read is
reported and names nothing (F41). Kafka: `ZkNodeChangeNotificationListener` and the notification
parts of `KafkaZkClient`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from ottla.zookeeper.access import Access
from ottla.zookeeper.errors import MalformedZnodeError, NoNodeError
from ottla.zookeeper.watches import WatchCallback

T = TypeVar("T")


class Notification(NamedTuple, Generic[T]):
    """`what` changed, None where that cannot be read; `ctime_ms`: since when it is there."""

    name: str
    what: T | None
    ctime_ms: int


class Notifications(Generic[T]):
    """Those of one kind. `decode` gets a notification's name and its data; MalformedZnodeError."""

    def __init__(
        self,
        zk: Access,
        parent: str,
        prefix: str,
        encode: Callable[[T], bytes],
        decode: Callable[[str, bytes], T],
    ) -> None:
        self.parent = parent
        self.prefix = prefix
        self._zk = zk
        self._encode = encode
        self._decode = decode

    async def notify(self, what: T) -> str:
        """Leave a notification; return its path."""
        path, data = f"{self.parent}/{self.prefix}", self._encode(what)
        try:
            return await self._zk.create_sequential(path, data)
        except NoNodeError:
            await self._zk.create_recursive(self.parent, None, fail_if_exists=False)
            return await self._zk.create_sequential(path, data)

    async def names(self, watch: WatchCallback | None = None) -> list[str]:
        """Return the notifications' names in order. `watch`: on the list."""
        return await self._zk.get_children(self.parent, watch)

    async def read(self, names: Sequence[str]) -> list[Notification[T]]:
        """Return those of these notifications that still exist."""
        found: list[Notification[T]] = []
        replies = await self._zk.get_many([f"{self.parent}/{name}" for name in names])
        for name, reply in zip(names, replies, strict=True):
            if reply is not None:
                what = self._zk.decoded(self._decoded, name, reply[0])
                found.append(Notification(name, what, reply[1].ctime))
        return found

    def _decoded(self, name: str, data: bytes) -> T:
        number = name.removeprefix(self.prefix)
        if not (name.startswith(self.prefix) and number.isascii() and number.isdigit()):
            raise MalformedZnodeError(f"{self.parent}/{name}", "its name has no number")
        return self._decode(name, data)

    async def delete(self, names: Iterable[str]) -> None:
        """Delete these notifications; those that are gone already are fine."""
        await self._zk.delete_paths([f"{self.parent}/{name}" for name in names])
