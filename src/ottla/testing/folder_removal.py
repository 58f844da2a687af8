"""Folder removal: a cluster's folder goes with the process that made it, also after kill -9.

A shell waits for the end of a pipe whose other end only this process has: the kernel closes it
after the last of its threads has ended, so nothing writes there any more. Invariants: the shell has
a session of its own, so that what a terminal or a process group is sent does not reach it; a fork
of this process does not keep the pipe open; each wait has a bound.
"""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

SHELL = "/bin/sh"
SCRIPT = """trap '' HUP INT TERM; read -r _; rm -rf -- "$1" """
END_S = 10.0

_ends: set[int] = set()
"""This process's ends of the pipes."""


class FolderRemoval:
    """Removes a folder when this process ends, however that ends, or by `remove`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._shell: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        read_end, self._end = os.pipe()
        _ends.add(self._end)
        # Where there is no shell the cluster runs all the same: its folder stays after a kill -9.
        with contextlib.suppress(OSError):
            self._shell = subprocess.Popen(  # noqa: S603 - fixed arguments
                [SHELL, "-c", SCRIPT, "ottla", str(self._folder)],
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        os.close(read_end)

    def remove(self) -> None:
        """Remove the folder now; in a fork of the owner do nothing. Twice is fine."""
        if self._owner != os.getpid():
            return
        shutil.rmtree(self._folder, ignore_errors=True)
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.kill()
            shell.wait(END_S)
        if self._end in _ends:
            _ends.discard(self._end)
            os.close(self._end)


def _close_in_fork() -> None:
    """Let go of the pipes: a fork may live for longer than the owner."""
    for end in _ends:
        with contextlib.suppress(OSError):
            os.close(end)
    _ends.clear()


os.register_at_fork(after_in_child=_close_in_fork)
