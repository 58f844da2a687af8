"""Reads and writes with retries after a lost connection.

Invariants:
- A read is repeated after a lost connection, once the same session is connected again.
- A write is repeated only where a lost reply can be distinguished from a lost request: it is read
  again (after a sync), and recognised by data and version.
- A controller's write is a multi with a check on the version of /controller_epoch (R10); another
  version means ControllerMovedError and nothing was written.
- One operation that fails does not fail the others of its chunk: they are sent again without it,
  and after two failures one by one.
- Waiting is bounded by the session's own deadline: SessionExpiredError ends it.
Kafka: `KafkaZkClient.retryRequestsUntilConnected` and `wrapRequestWithControllerEpochCheck`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar

from ottla.model.errors import ControllerMovedError
from ottla.zookeeper.errors import (
    BadVersionError,
    ConnectionLossError,
    MalformedZnodeError,
    MultiError,
    NodeExistsError,
    NoNodeError,
    UnimplementedError,
    ZooKeeperError,
)
from ottla.zookeeper.jute import Stat
from ottla.zookeeper.operations import Check, Create, Delete, Op, Set
from ottla.zookeeper.session import Session
from ottla.zookeeper.watches import WatchCallback
from ottla.zookeeper.znodes import CONTROLLER_EPOCH

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

ANY_VERSION = -1
UNKNOWN_VERSION = -2
"""Kafka's `ZkVersion.UnknownVersion`: there is no such znode."""

CHUNK_BYTES = 384 * 1024
CHUNK_OPS = 1000
SINGLES_AT_ONCE = 200
OP_OVERHEAD_BYTES = 64
READS_AT_ONCE = 400
SLICES_AHEAD = 2
MAX_LOSSES = 20


class Write(NamedTuple):
    """One operation of a chunk and the key its result is found by.

    `check`: what must hold at the moment of the operation, beside the fence; if it does not, its
    error is the result.
    """

    key: Any
    op: Op
    check: Check | None = None

    @property
    def ops(self) -> list[Op]:
        return [self.op] if self.check is None else [self.check, self.op]


class Access:
    """What all parts of a store read and write through.

    `fence`: the version of /controller_epoch that each write is checked against, or ANY_VERSION.
    """

    def __init__(
        self,
        session: Session,
        *,
        on_malformed: Callable[[MalformedZnodeError], None] | None = None,
        fence: int = ANY_VERSION,
    ) -> None:
        self.session = session
        self.fence = fence
        self.on_malformed = on_malformed

    def ignore(self, error: MalformedZnodeError) -> None:
        """Log that a znode's content is ignored (F41)."""
        log.error("malformed znode ignored path=%s reason=%s", error.path, error.reason)
        if self.on_malformed is not None:
            self.on_malformed(error)

    def decoded(self, decode: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Return what a znode says; None where it is malformed, which is reported."""
        try:
            return decode(*args, **kwargs)
        except MalformedZnodeError as error:
            self.ignore(error)
            return None

    # --- reads ------------------------------------------------------------------------------

    async def read(self, ask: Callable[[], "asyncio.Future[T]"]) -> T:
        """Send a read; repeat it whenever the connection was lost before the reply."""
        losses = 0
        while True:
            try:
                return await ask()
            except ConnectionLossError:
                losses = await self.reconnected(losses)

    async def reconnected(self, losses: int) -> int:
        """Wait for the session after a lost connection; raise if one request loses it often."""
        if losses >= MAX_LOSSES:
            raise ConnectionLossError(f"the connection was lost {losses} times during one request")
        await self.session.wait_connected()
        return losses + 1

    async def read_all(
        self, ask: Callable[[str], "asyncio.Future[T]"], paths: Sequence[str]
    ) -> list[T | ZooKeeperError]:
        """Read each path, pipelined; each result is a reply or its own error."""
        results: list[T | ZooKeeperError] = []
        await self.read_slices(ask, paths, lambda _start, found: results.extend(found))
        return results

    async def read_slices(
        self,
        ask: Callable[[str], "asyncio.Future[T]"],
        paths: Sequence[str],
        take: Callable[[int, list[T | ZooKeeperError]], None],
    ) -> None:
        """Do the same slice by slice: `take` gets the index of the first path and the results.

        While one slice is waited for and taken, the next one is on its way.
        """
        size = READS_AT_ONCE
        ahead = [ask(path) for path in paths[:size]]
        try:
            for start in range(0, len(paths), size):
                slice_, asked = paths[start : start + size], ahead
                ahead = [ask(path) for path in paths[start + size : start + 2 * size]]
                found = await settle(asked)
                losses = 0
                while lost := [
                    i for i, r in enumerate(found) if isinstance(r, ConnectionLossError)
                ]:
                    losses = await self.reconnected(losses)
                    again = await settle([ask(slice_[i]) for i in lost])
                    for i, result in zip(lost, again, strict=True):
                        found[i] = result
                take(start, found)
        finally:
            for future in ahead:
                if future.done() and not future.cancelled():
                    future.exception()  # nothing else will look at it
                future.cancel()

    async def get_data_in_slices(
        self,
        paths: Sequence[str],
        take: Callable[[int, list[tuple[bytes, Stat] | ZooKeeperError]], None],
    ) -> None:
        """Read the data of many small znodes, as `read_slices` does, by one request for each slice.

        To ZooKeeper a request costs as much as the write of ten states in one multi. A server
        before 3.6 does not know such a request; one whose reply was lost may have had a reply too
        large for a frame: both are read znode by znode.
        """
        size = READS_AT_ONCE
        slices = [paths[start : start + size] for start in range(0, len(paths), size)]
        ahead = [self._read_slice(some) for some in slices[:SLICES_AHEAD]]
        try:
            for number, some in enumerate(slices):
                following = slices[number + SLICES_AHEAD : number + SLICES_AHEAD + 1]
                ahead += map(self._read_slice, following)
                sent, ahead[number] = ahead[number], None
                take(number * size, await self._slice_read(sent, some))
        finally:
            for future in ahead:
                if future is not None and future.done() and not future.cancelled():
                    future.exception()  # nothing else will look at it
                elif future is not None:
                    future.cancel()

    def _read_slice(
        self, paths: Sequence[str]
    ) -> "asyncio.Future[list[tuple[bytes, Stat] | ZooKeeperError]] | None":
        """Send one request for the data of znodes; None where the server would not know it."""
        return self.session.multi_read(paths) if self.session.has_multi_read else None

    async def _slice_read(
        self,
        sent: "asyncio.Future[list[tuple[bytes, Stat] | ZooKeeperError]] | None",
        paths: Sequence[str],
    ) -> list[tuple[bytes, Stat] | ZooKeeperError]:
        """Return what such a request gave, or read the znodes one by one."""
        if sent is not None:
            try:
                return await sent
            except UnimplementedError:
                self.session.has_multi_read = False
            except ConnectionLossError:
                await self.session.wait_connected()
        return await self.read_all(self.session.get, paths)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Return data and stat of each path, None where there is no such znode."""
        found: list[tuple[bytes, Stat] | None] = []
        await self.read_slices(
            self.session.get, paths, lambda _start, some: found.extend(map(present, some))
        )
        return found

    async def get_data_and_stat(
        self, path: str, watch: WatchCallback | None = None
    ) -> tuple[bytes, Stat] | None:
        """Return data and stat, or None if there is no such znode (then nothing is watched)."""
        try:
            return await self.read(lambda: self.session.get(path, watch))
        except NoNodeError:
            return None

    async def get_data_and_version(self, path: str) -> tuple[bytes | None, int]:
        """Return data and version, or (None, UNKNOWN_VERSION)."""
        found = await self.get_data_and_stat(path)
        return (None, UNKNOWN_VERSION) if found is None else (found[0], found[1].version)

    async def get_children(self, path: str, watch: WatchCallback | None = None) -> list[str]:
        """Return the children sorted; none if there is no such znode."""
        try:
            return await self.read(lambda: self.session.children(path, watch))
        except NoNodeError:
            return []

    async def path_exists(self, path: str, watch: WatchCallback | None = None) -> bool:
        """Return whether there is such a znode. `watch`: on creation, data and deletion."""
        return await self.read(lambda: self.session.exists(path, watch)) is not None

    # --- single writes ----------------------------------------------------------------------

    async def write(self, op: Op) -> Any:
        """Do one operation; raise its error."""
        results = await self.write_all([Write(None, op)])
        result = results[None]
        if isinstance(result, ZooKeeperError):
            raise result
        return result

    async def create_recursive(
        self, path: str, data: bytes | None = None, *, fail_if_exists: bool = True
    ) -> bool:
        """Create a znode and the parents it lacks; tell whether it was created by us."""
        try:
            await self.write(Create(path, data))
        except NodeExistsError:
            if fail_if_exists:
                raise
            return False
        except NoNodeError:
            parent = path.rpartition("/")[0]
            if not parent:
                raise
            await self.create_recursive(parent, None, fail_if_exists=False)
            return await self.create_recursive(path, data, fail_if_exists=fail_if_exists)
        return True

    async def set_or_create(self, path: str, data: bytes) -> None:
        """Write a znode, creating it and the parents it lacks; the last writer wins."""
        try:
            await self.write(Set(path, data))
        except NoNodeError:
            if not await self.create_recursive(path, data, fail_if_exists=False):
                await self.write(Set(path, data))

    async def create_missing(self, paths: Sequence[str]) -> None:
        """Create the znodes that are not there, pipelined, parents first; raise the first error.

        Each is a request of its own: most of them exist, and one that fails ends no other.
        """
        results: dict[Any, Any] = {}
        await self._write_singly([Write(path, Create(path, None)) for path in paths], [], results)
        for path in paths:
            problem = results[path]
            if isinstance(problem, ZooKeeperError) and not isinstance(problem, NodeExistsError):
                raise problem

    async def create_sequential(self, prefix: str, data: bytes) -> str:
        """Create `prefix` + a number; after a lost reply there may be two (both are read once)."""
        return (await self.read(lambda: self.session.create(prefix, data, sequence=True)))[0]

    async def conditional_update(
        self, path: str, data: bytes, expected_version: int
    ) -> tuple[bool, int]:
        """Swap the data if it has `expected_version`: (True, new version) or (False, unknown).

        A lost reply is recognised: our data with the next version is our own write.
        """
        try:
            stat = await self.write(Set(path, data, expected_version))
        except (BadVersionError, NoNodeError):
            return False, UNKNOWN_VERSION
        return True, stat.version

    async def delete_recursive(self, path: str) -> bool:
        """Delete a znode and all below it, children first; False if it was not there."""
        existed = False
        for _ in range(10):
            tree = await self._tree(path)
            if not tree:
                return existed
            existed = True
            writes = [Write(found, Delete(found)) for found in reversed(tree)]
            results = await self.write_all(writes)
            problem = results[path]
            if not isinstance(problem, ZooKeeperError) or isinstance(problem, NoNodeError):
                return True
        raise problem  # children keep appearing below it

    async def _tree(self, path: str) -> list[str]:
        """Return the path and all below it, parents first; nothing if it is not there."""
        level = [path]
        found: list[str] = []
        while level:
            replies = await self.read_all(self.session.children, level)
            below = []
            for parent, children in zip(level, replies, strict=True):
                if isinstance(children, NoNodeError):
                    continue
                if isinstance(children, ZooKeeperError):
                    raise children
                found.append(parent)
                below += [f"{parent}/{child}" for child in children]
            level = below
        return found

    async def delete_paths(self, paths: Sequence[str]) -> None:
        """Delete znodes; those already gone are fine, any other error is raised at the end."""
        writes = [Write(path, Delete(path)) for path in paths]
        results = await self.write_all(writes)
        for result in results.values():
            if isinstance(result, ZooKeeperError) and not isinstance(result, NoNodeError):
                raise result

    # --- chunks of writes -------------------------------------------------------------------

    async def write_all(
        self, writes: Sequence[Write], guards: Sequence[Check] = ()
    ) -> dict[Any, Any]:
        """Do all that can be done, in order, in chunks; return each key's result or error.

        ControllerMovedError as soon as the fence fails. `guards`: what else must hold at the moment
        of each write; where one does not, the writes that are left have no result.
        """
        assert self.fence != ANY_VERSION or not guards
        fence: list[Op] = []
        if self.fence != ANY_VERSION:
            fence = [Check(CONTROLLER_EPOCH, self.fence)]
        results: dict[Any, Any] = {}
        try:
            for chunk in chunks(writes):
                await self._write_chunk(chunk, [*fence, *guards], results)
        except _GuardFailedError:
            log.info("write given up reason=%r path=%s", "a guard failed", guards[0].path)
        return results

    async def _write_chunk(
        self, left: list[Write], fence: list[Op], results: dict[Any, Any]
    ) -> None:
        losses = failures = 0
        checked = any(write.check is not None for write in left)
        while left and failures < 2 and len(left) > 1 and not checked:
            try:
                replies = await self.session.multi(fence + [w.op for w in left])
            except ConnectionLossError:
                losses = await self.reconnected(losses)
                left = await self._drop_done(left, results)
            except MultiError as error:
                index = error.index - len(fence)
                if index < 0:
                    raise _failed_fence(fence, error) from None
                failures += 1
                failed = left.pop(index)
                results[failed.key] = await self._unless_own(failed.op, error.error, losses)
            else:
                results.update(zip((w.key for w in left), replies[len(fence) :], strict=True))
                return
        await self._write_singly(left, fence, results, losses)

    async def _write_singly(
        self, left: list[Write], fence: list[Op], results: dict[Any, Any], losses: int = 0
    ) -> None:
        """Send each write in its own multi, pipelined, so that none fails because of another."""
        while left:
            batch, rest = left[:SINGLES_AT_ONCE], left[SINGLES_AT_ONCE:]
            replies = await settle([self.session.multi([*fence, *w.ops]) for w in batch])
            lost = []
            for write, reply in zip(batch, replies, strict=True):
                if isinstance(reply, ConnectionLossError):
                    lost.append(write)
                elif isinstance(reply, MultiError) and reply.index < len(fence):
                    raise _failed_fence(fence, reply)
                elif isinstance(reply, MultiError):
                    results[write.key] = await self._unless_own(write.op, reply.error, losses)
                elif isinstance(reply, ZooKeeperError):
                    raise reply
                else:
                    results[write.key] = reply[-1]
            if lost:
                losses = await self.reconnected(losses)
                lost = await self._drop_done(lost, results)
            left = lost + rest

    async def _unless_own(self, op: Op, error: ZooKeeperError, losses: int) -> Any:
        """Return `error`, or the result if a reply lost before was this operation's."""
        own = await self._find_own(op) if losses else None
        return error if own is None else own.result

    async def catch_up(self) -> None:
        """Wait until the connected server has all writes before this call (sync)."""
        await self.read(lambda: self.session.sync("/"))

    async def _drop_done(self, batch: list[Write], results: dict[Any, Any]) -> list[Write]:
        """After a lost reply: note what was done all the same and return what was not."""
        left = []
        await self.catch_up()
        for write in batch:
            own = await self._find_own(write.op)
            if own is None:
                left.append(write)
            else:
                results[write.key] = own.result
        return left

    async def _find_own(self, op: Op) -> "_Own | None":
        """Return what `op` gave if it is done already, recognised by its data and version."""
        if isinstance(op, Check) or (isinstance(op, Set) and op.version == ANY_VERSION):
            return None
        found = await self.get_data_and_stat(op.path)
        if isinstance(op, Delete):
            return _Own(None) if found is None else None
        if found is None or found[0] != (op.data or b""):
            return None
        stat = found[1]
        if isinstance(op, Set):
            return _Own(stat) if stat.version == op.version + 1 else None
        if op.sequence or (op.ephemeral and stat.ephemeral_owner != self.session.session_id):
            return None
        return _Own(op.path)


class Part:
    """One part of a store: all that it reads and writes goes through one `Access`."""

    def __init__(self, zk: Access) -> None:
        self._zk = zk


class _Own(NamedTuple):
    result: Any


class _GuardFailedError(Exception):
    """A check beside the fence failed; never leaves the module."""


def _failed_fence(fence: list[Op], failed: MultiError) -> Exception:
    error = failed.error
    if not isinstance(error, BadVersionError | NoNodeError):
        return error
    check = fence[failed.index]
    assert isinstance(check, Check)
    if check.path != CONTROLLER_EPOCH:
        return _GuardFailedError()
    return ControllerMovedError(
        f"another controller was elected: {check.path} no longer has version {check.version}"
    )


def present(reply: T | ZooKeeperError) -> T | None:
    """Return a reply, None where there is no such znode; raise any other error."""
    if not isinstance(reply, ZooKeeperError):
        return reply
    if isinstance(reply, NoNodeError):
        return None
    raise reply


async def settle(
    futures: "Sequence[asyncio.Future[T]]",
) -> list[T | ZooKeeperError]:
    """Wait for all; each result is a reply or its own error."""
    results: list[T | ZooKeeperError] = []
    for future in futures:
        try:
            results.append(await future)
        except ZooKeeperError as error:
            results.append(error)
    return results


def chunks(writes: Sequence[Write]) -> Iterator[list[Write]]:
    """Cut writes into chunks that one multi can carry."""
    chunk: list[Write] = []
    size = 0
    for write in writes:
        op = write.op
        data = op.data if isinstance(op, Create | Set) else None
        cost = OP_OVERHEAD_BYTES + len(op.path) + len(data or b"")
        if chunk and (size + cost > CHUNK_BYTES or len(chunk) >= CHUNK_OPS):
            yield chunk
            chunk, size = [], 0
        chunk.append(write)
        size += cost
    if chunk:
        yield chunk
