"""Boot id files tell whether the system kept running since the last process wrote (R18).

A process that dies alone (kill -9, out of memory) loses nothing of what it wrote: the page cache
has it. A machine that dies loses what was not fsynced. The file in a log dir holds the id of the
boot in which everything not yet durable there was written. If the next start finds the same boot
id, its logs are complete after an unclean stop, too. Invariants:
- the file exists only while no log of the dir may lack records at its end. It is removed when a
  start begins and written when all is loaded; it is removed after a disk error, and before a log
  that may be incomplete is put into the dir
- a start that found records missing writes no file before a controller has sent the broker its
  replicas: then logs that are not there any more have been made again, and marked. To have
  registered is not enough: an emptied disk that no controller had heard of, and that was stopped
  cleanly, passed for one that had kept everything (adr/0007)
- it counts only beside the lock file that the last life held (`lives`): the files of a copy of the
  dir are older, and of different moments (R22)
- where the system has no boot id (`Files.boot_id`), there is no file
Kafka has no such file and ignores it. A JVM broker that used the dir in between changes nothing:
what it wrote in the same boot is there, too.
"""

import contextlib
from collections.abc import Callable, Iterable

from ottla.log.checkpoints import LOCK
from ottla.log.log_dir import LogDir
from ottla.model.ports import Files

BOOT_ID_FILE = ".ottla-boot"


class BootIdFiles:
    """The boot id files of all log dirs; `failed` is called for a dir that cannot be written."""

    def __init__(self, files: Files, failed: Callable[[LogDir, OSError], None]) -> None:
        self._files = files
        self._failed = failed
        self.replicas_received = True
        """whether a controller has sent the broker its replicas since this start; until then the
        next start must find, too, what this one found missing"""

    def known(self, log_dir: LogDir) -> bool:
        """Return whether everything that is missing in a dir is marked, or nothing is."""
        return self.replicas_received or log_dir.clean or log_dir.same_boot

    def take(self, log_dir: LogDir) -> None:
        """Read and remove a dir's file, and set `same_boot`; raises OSError."""
        path = log_dir.file(BOOT_ID_FILE)
        try:
            noted = self._files.read_bytes(path).decode(errors="replace")
        except FileNotFoundError:
            noted = ""
        else:
            self._files.remove(path)
        boot_id = self._files.boot_id(log_dir.path)
        lock = self._files.lock_id(log_dir.file(LOCK))
        log_dir.same_boot = bool(noted) and noted == boot_id and log_dir.life.lock in ("", lock)
        log_dir.may_be_unwritten = bool(boot_id) and not (noted or log_dir.clean)

    def write(self, log_dirs: Iterable[LogDir], incomplete: set[str]) -> None:
        """Write the boot id in dirs that have none yet, except those at the paths `incomplete`.

        Without fsync: after another boot the file says nothing.
        """
        for log_dir in log_dirs:
            if (
                not log_dir.boot_id_written
                and log_dir.path not in incomplete
                and self.known(log_dir)
            ):
                boot = self._files.boot_id(log_dir.path)
                try:
                    if boot:
                        self._files.write(log_dir.file(BOOT_ID_FILE), boot.encode())
                except OSError as error:
                    self._failed(log_dir, error)
                else:
                    log_dir.boot_id_written = True

    def withdraw(self, log_dir: LogDir) -> None:
        """Remove the file: the next start then treats every log of the dir as maybe incomplete."""
        log_dir.same_boot = log_dir.boot_id_written = False
        try:
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(log_dir.file(BOOT_ID_FILE))
        except OSError as error:
            self._failed(log_dir, error)
