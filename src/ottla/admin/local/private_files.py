"""Files with keys and passwords: replaced whole, the owner's alone from their first byte on.

Who may call: this folder.
"""

import os
from pathlib import Path

from ottla.model.errors import OttlaError

PRIVATE, PUBLIC = 0o600, 0o644


def replace_file(file: Path, data: bytes, mode: int = PRIVATE) -> None:
    """Replace a file whole; a private one is never open to other users. OttlaError."""
    part = file.with_name(f".{file.name}.part")
    try:
        part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(descriptor)
        part.replace(file)
    except OSError as error:
        raise OttlaError(f"cannot write {file}: {error.strerror}") from error
