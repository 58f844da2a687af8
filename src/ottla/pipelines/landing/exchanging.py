"""Two folders change places at once: Linux's renameat2 with RENAME_EXCHANGE.

Invariants: a reader sees the folders as before or as after, also after a crash; where the system
or the file system cannot do that, nothing is done.
"""

import ctypes
import errno
import os
from pathlib import Path
from typing import Any

from ottla.model.errors import OttlaError

EXCHANGE, HERE = 2, -100
"""Linux: RENAME_EXCHANGE, AT_FDCWD."""


def exchange(one: Path, other: Path) -> None:
    """Let two folders change places at once; OttlaError where the system cannot do that."""
    libc: Any = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        raise OttlaError("this system cannot exchange two folders at once: no compaction here")
    if libc.renameat2(HERE, os.fsencode(one), HERE, os.fsencode(other), EXCHANGE):
        code = ctypes.get_errno()
        if code in (errno.ENOSYS, errno.EINVAL):
            raise OttlaError(
                f"{other}: its file system cannot exchange two folders at once; nothing was changed"
            )
        raise OSError(code, os.strerror(code), str(other))
