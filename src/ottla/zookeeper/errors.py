"""ZooKeeper's errors, one class per code.

Invariants: `by_code` covers every code of ZooKeeper 3.8; an unknown one becomes a plain
`ZooKeeperError` that names it. ZooKeeper: `KeeperException`.
"""

from typing import ClassVar

from ottla.model.errors import OttlaError


class ZooKeeperError(OttlaError):
    """An operation on ZooKeeper failed. `zk_code` is ZooKeeper's own, 0 where it has none."""

    zk_code: ClassVar[int] = 0

    def __init__(self, message: str = "", *, path: str | None = None) -> None:
        super().__init__(message or _text(type(self), path))
        self.path = path


def _text(kind: type[ZooKeeperError], path: str | None) -> str:
    summary = (kind.__doc__ or kind.__name__).split("\n", 1)[0].rstrip(".")
    return f"{summary}: {path}" if path is not None else summary


class ServerFailureError(ZooKeeperError):
    """ZooKeeper had an internal error."""

    zk_code = -1


class RuntimeInconsistencyError(ZooKeeperError):
    """Not done, because an earlier operation of the same multi failed."""

    zk_code = -2


class ConnectionLossError(ZooKeeperError):
    """The connection was lost before the response came: the operation may or may not be done."""

    zk_code = -4


class MarshallingError(ZooKeeperError):
    """ZooKeeper could not read the request."""

    zk_code = -5


class UnimplementedError(ZooKeeperError):
    """This ZooKeeper does not know the operation."""

    zk_code = -6


class OperationTimeoutError(ZooKeeperError):
    """ZooKeeper could not be reached in time."""

    zk_code = -7


class BadArgumentsError(ZooKeeperError):
    """ZooKeeper refused the arguments."""

    zk_code = -8


class NoNodeError(ZooKeeperError):
    """No such znode."""

    zk_code = -101


class NoAuthError(ZooKeeperError):
    """The znode's ACL does not allow this."""

    zk_code = -102


class BadVersionError(ZooKeeperError):
    """The znode has another version than expected."""

    zk_code = -103


class NoChildrenForEphemeralsError(ZooKeeperError):
    """An ephemeral znode may not have children."""

    zk_code = -108


class NodeExistsError(ZooKeeperError):
    """The znode exists already."""

    zk_code = -110


class NotEmptyError(ZooKeeperError):
    """The znode has children."""

    zk_code = -111


class SessionExpiredError(ZooKeeperError):
    """The session has ended: expired, fenced by our own deadline, or closed."""

    zk_code = -112


class InvalidAclError(ZooKeeperError):
    """The ACL is not valid."""

    zk_code = -114


class AuthFailedError(ZooKeeperError):
    """ZooKeeper refused the credentials."""

    zk_code = -115


class NoWatcherError(ZooKeeperError):
    """There is no such watch."""

    zk_code = -121


class SessionMovedError(ZooKeeperError):
    """The session moved to another server; this connection is over."""

    zk_code = -118


class NotReadOnlyError(ZooKeeperError):
    """The server has lost its quorum and serves only reads."""

    zk_code = -119


class QuotaExceededError(ZooKeeperError):
    """The write would exceed a quota."""

    zk_code = -125


class AuthenticationRequiredError(ZooKeeperError):
    """The server takes requests only of clients that authenticated by SASL."""

    zk_code = -124


class ThrottledError(ZooKeeperError):
    """The server is overloaded and dropped the operation."""

    zk_code = -127


class RequestTooLargeError(ZooKeeperError):
    """The request is larger than ZooKeeper accepts (jute.maxbuffer); nothing was sent."""


class TooManyRequestsError(ZooKeeperError):
    """Too many requests wait for their responses; nothing was sent."""


class MultiError(ZooKeeperError):
    """One operation of a multi failed and none was done.

    `index` is the failing operation's position, `error` its own error.
    """

    def __init__(self, index: int, error: ZooKeeperError) -> None:
        super().__init__(f"operation {index} of a multi failed: {error}", path=error.path)
        self.index = index
        self.error = error


class MalformedZnodeError(ZooKeeperError):
    """A znode's content is not what Kafka writes there (fault F41): it is ignored and logged."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"malformed znode {path}: {reason}", path=path)
        self.reason = reason


_BY_CODE: dict[int, type[ZooKeeperError]] = {
    kind.zk_code: kind for kind in ZooKeeperError.__subclasses__() if kind.zk_code
}


def by_code(zk_code: int, path: str | None = None) -> ZooKeeperError:
    """Return the error for a code of ZooKeeper's."""
    kind = _BY_CODE.get(zk_code)
    if kind is None:
        where = f" for {path}" if path is not None else ""
        return ZooKeeperError(f"ZooKeeper responded with the unknown error {zk_code}{where}")
    return kind(path=path)
