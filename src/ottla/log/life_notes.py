"""The notes of lives in the log dirs: read at a start, compared and written at a registration.

What the notes say and promise is in `lives`. Invariant: what was known before a registration stays
as it is until that has succeeded. Kafka has no counterpart (adr/0025).
"""

import contextlib
import logging
from collections.abc import Callable

from msgspec.structs import replace

from ottla.log.checkpoints import LOCK
from ottla.log.dir_checkpoints import DirCheckpoints
from ottla.log.lives import LIFE_FILE, Life, Stated, decode, went_back
from ottla.log.log_dir import LogDir
from ottla.model.ports import Files, Workers

_logger = logging.getLogger(__name__)


class LifeNotes:
    """Those of all log dirs that are in use.

    `live` returns them; `distrust` is called for one whose logs may lack records at their ends.
    """

    def __init__(
        self,
        files: Files,
        checkpoints: DirCheckpoints,
        live: Callable[[], list[LogDir]],
        distrust: Callable[[LogDir], None],
    ) -> None:
        self._files = files
        self._checkpoints = checkpoints
        self._live = live
        self._distrust = distrust
        self.name = ""
        """of this life"""
        self.proven = True
        """whether ZooKeeper has always known a life to compare the dirs with"""
        self._registered = False

    @property
    def zookeeper_went_back(self) -> bool:
        """Whether ZooKeeper ever forgot what this broker knew: no stray is removed after that."""
        return any(log_dir.life.zookeeper_went_back for log_dir in self._live())

    def take(self, log_dir: LogDir) -> None:
        """Read a dir's note; OSError."""
        try:
            log_dir.life = decode(self._files.read_bytes(log_dir.file(LIFE_FILE)))
        except FileNotFoundError:
            log_dir.life = Life()

    def former_session(self) -> int:
        """Return the ZooKeeper session of the last process here; 0 if it may still run elsewhere.

        It is gone if we hold the very lock that it held; the lock of a copy tells nothing.
        """
        for log_dir in self._live():
            with contextlib.suppress(OSError):
                if log_dir.life.lock == self._files.lock_id(log_dir.file(LOCK)):
                    return log_dir.life.session
        return 0

    def compare(self, stated: Stated) -> str:
        """Before a registration: see whether the dirs are of the life that ZooKeeper knows.

        Dirs that are not may lack acknowledged records; so may all if ZooKeeper is older than they
        are, since its ISRs are. Their logs are unclean until they are shown to be complete (R18).
        Return how ZooKeeper went back, "" if it did not.
        """
        live = self._live()
        self._registered = False
        self.proven = self.proven and bool(stated.life)
        back = went_back((log_dir.life for log_dir in live), stated)
        for log_dir in live:
            if back:
                log_dir.life = replace(log_dir.life, zookeeper_went_back=True)
                self._distrust(log_dir)
            elif not log_dir.life.is_last(stated.life):
                _logger.warning(
                    "log dir is not of the last life of this broker dir=%s life=%s last=%s: its "
                    "logs are compared with other replicas before they lead",
                    log_dir.path,
                    log_dir.life.life or "unknown",
                    stated.life,
                )
                self._distrust(log_dir)
        return back

    async def announce(self, workers: Workers) -> None:
        """Name this life in all dirs, durably, before it registers."""
        for log_dir in self._live():
            if self.name not in (log_dir.life.life, log_dir.life.next):
                log_dir.life = replace(log_dir.life, next=self.name)
                await self._checkpoints.write(workers, [log_dir], LIFE_FILE)

    async def registered(
        self, workers: Workers, broker_epoch: int, zxid: int, controller_epoch: int, session: int
    ) -> None:
        """Note the registration in all dirs: what they remember of ZooKeeper begins with it."""
        for log_dir in self._live():
            lock = ""
            with contextlib.suppress(OSError):  # then a quick return waits for the old session
                lock = self._files.lock_id(log_dir.file(LOCK))
            log_dir.life = Life(
                life=self.name,
                broker_epoch=broker_epoch,
                statement_zxid=broker_epoch,
                zxid=max(zxid, broker_epoch),
                controller_epoch=controller_epoch,
                session=session,
                lock=lock or "unknown",
                zookeeper_went_back=log_dir.life.zookeeper_went_back,
            )
            await self._checkpoints.write(workers, [log_dir], LIFE_FILE)
        self._registered = True

    def note(self, zxid: int, controller_epoch: int, statement_zxid: int = 0) -> bool:
        """Take note of how far ZooKeeper is, once registered; return whether that is news."""
        news = False
        for log_dir in self._live() if self._registered else ():
            before = log_dir.life
            log_dir.life = replace(
                before,
                zxid=max(zxid, statement_zxid),
                controller_epoch=controller_epoch,
                statement_zxid=statement_zxid or before.statement_zxid,
            )
            news |= log_dir.life != before
        return news

    async def write(self, workers: Workers) -> None:
        """Write what was noted into one dir: the newest of all dirs counts."""
        await self._checkpoints.write(workers, self._live()[:1], LIFE_FILE)

    def write_now(self, log_dir: LogDir) -> None:
        """Write a dir's note at a stop, unless this life never registered."""
        if self._registered:
            self._checkpoints.write_now(log_dir, LIFE_FILE)
