"""Faults inside a broker's process: shim.c compiled by whoever needs it, and told what to do.

A broker started with `environment` suffers what the fields of its `Shim` say from that moment on,
and no longer when they are 0 again.
"""

import mmap
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("shim.c")
LAYOUT = struct.Struct("<q6iq512s")
FIELDS = (
    "wall_offset_ms",
    "write_ms",
    "write_errno",
    "sync_ms",
    "sync_errno",
    "read_errno",
    "stall_ms",
    "hits",
)


class CannotBeTriedError(Exception):
    """What a fault needs is not to be had on this machine."""


def compile_shim(folder: Path) -> Path:
    """Return the library; CannotBeTriedError where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise CannotBeTriedError("no C compiler (cc, gcc, clang) to build tests/faults/shim.c with")
    library = folder / "shim.so"
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    done = subprocess.run(
        [*command, "-ldl", "-lpthread"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CannotBeTriedError(f"tests/faults/shim.c cannot be compiled: {done.stderr.strip()}")
    return library


class Shim:
    """One broker's faults; `hits` counts the calls that were slowed down or failed."""

    def __init__(self, library: Path, path: Path) -> None:
        path.write_bytes(bytes(mmap.PAGESIZE))
        self.environment = {"LD_PRELOAD": str(library), "OTTLA_TEST_FAULTS": str(path)}
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    def set(self, prefix: Path | str | None = None, **fields: int) -> None:
        """Change fields; `prefix` is where the paths begin whose disk is at fault."""
        values: list[Any] = list(LAYOUT.unpack_from(self._shared))
        for name, value in fields.items():
            values[FIELDS.index(name)] = value
        if prefix is not None:
            values[-1] = str(prefix).encode()
        LAYOUT.pack_into(self._shared, 0, *values)

    def heal(self) -> None:
        self.set("", **dict.fromkeys(FIELDS, 0))

    def get(self, name: str) -> int:
        return int(LAYOUT.unpack_from(self._shared)[FIELDS.index(name)])
