"""Files with keys and passwords: replaced whole, the owner's alone from their first byte on."""

from pathlib import Path

from ottla.model import durable_files
from ottla.model.errors import OttlaError

PRIVATE, PUBLIC = 0o600, 0o644


def replace_file(file: Path, data: bytes, mode: int = PRIVATE) -> None:
    """Replace a file whole; a private one is never open to other users. OttlaError."""
    try:
        durable_files.replace_file(file, data, mode)
    except OSError as error:
        raise OttlaError(f"cannot write {file}: {error.strerror}") from error
