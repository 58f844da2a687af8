"""Boot notes tell whether the operating system ran on since the last process wrote (R18).

Who may call: `manager`. A process that dies alone (kill -9, out of memory) loses nothing of what
it wrote: the page cache has it. A machine that dies loses what was not fsynced. The note in a log
dir names the boot of the system in which all that is not durable there was written; where the next
start finds the same boot, its logs are complete after an unclean stop, too. Invariants:
- the note stands only while no log of the dir may lack its end: it is gone from the beginning of a
  start until all is loaded, when a disk error was met, and before such a log comes to be there
- a start that found something missing writes none before the broker has registered and said so
- where the system cannot name its boot (`Files.boot_id`), there is no note
Kafka has no such thing; it ignores the file. A JVM broker that used the dir in between changes
nothing: what it wrote in the same boot is there, too.
"""

import contextlib
from collections.abc import Callable, Iterable

from ottla.log.log_dir import LogDir
from ottla.model.ports import Files

BOOT_NOTE = ".ottla-boot"


class BootNotes:
    """The notes of all log dirs; `failed` hears of a dir that cannot be written."""

    def __init__(self, files: Files, failed: Callable[[LogDir, OSError], None]) -> None:
        self._files = files
        self._failed = failed
        self.registered = True
        """whether the cluster knows what the last start found missing; else the next start is to
        find it, too"""

    def known(self, log_dir: LogDir) -> bool:
        """Tell whether nothing is missing in a dir of which the cluster does not know."""
        return self.registered or log_dir.clean or log_dir.same_boot

    def take(self, log_dir: LogDir) -> None:
        """Read and remove a dir's note; `same_boot` says whether it was of this boot. OSError."""
        path = log_dir.file(BOOT_NOTE)
        try:
            noted = self._files.read_bytes(path).decode(errors="replace")
        except FileNotFoundError:
            noted = ""
        else:
            self._files.remove(path)
        log_dir.same_boot = bool(noted) and noted == self._files.boot_id(log_dir.path)

    def write(self, log_dirs: Iterable[LogDir], incomplete: set[str]) -> None:
        """Note the boot in dirs that have no note yet, but for those at the paths `incomplete`.

        Not durable: after another boot the note says nothing.
        """
        for log_dir in log_dirs:
            if not log_dir.boot_noted and log_dir.path not in incomplete and self.known(log_dir):
                boot = self._files.boot_id(log_dir.path)
                try:
                    if boot:
                        self._files.write(log_dir.file(BOOT_NOTE), boot.encode())
                except OSError as error:
                    self._failed(log_dir, error)
                else:
                    log_dir.boot_noted = True

    def withdraw(self, log_dir: LogDir) -> None:
        """Have the next start take every log of the dir for one that may lack its end."""
        log_dir.same_boot = log_dir.boot_noted = False
        try:
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(log_dir.file(BOOT_NOTE))
        except OSError as error:
            self._failed(log_dir, error)
