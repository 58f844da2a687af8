"""What a command's process owes whoever runs it: its standard output, its end by a signal.

Invariants: Ctrl-C, SIGTERM and SIGHUP end a command with exit code 130 and one line. Where nothing
has begun they end the process at once; what has begun, a conversation with a cluster or a change of
a folder, is ended in order by KeyboardInterrupt.
"""

import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn, TextIO

EXIT_INTERRUPTED = 130
STANDARD_OUTPUT = "standard output"
INTERRUPTED = "ottla: interrupted"
_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def take_over() -> None:
    """Have this process end at once by a signal, and say what it cannot write to."""
    with contextlib.suppress(ValueError):  # not in the main thread: nothing comes there
        for number in _NUMBERS:
            signal.signal(number, _leave)
    old = sys.stdout
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_NamedFile(old.fileno(), "w", closefd=False)),
        encoding=old.encoding,
        errors=old.errors,
        line_buffering=old.isatty(),
    )


def _leave(_number: int, _frame: object) -> NoReturn:
    # An exception may come amid an import or a call into C; msgspec's ends by SIGSEGV then.
    _be_deaf()
    with contextlib.suppress(OSError):
        os.write(2, f"{INTERRUPTED}\n".encode())
    os._exit(EXIT_INTERRUPTED)


def _as_ctrl_c(_number: int, frame: FrameType | None) -> None:
    """Do what Ctrl-C does at this moment.

    While a loop runs, asyncio's handler cancels the task: an exception out of here would be raised
    amid whatever the task does, past what it does when it is cancelled.
    """
    handler = signal.getsignal(signal.SIGINT)
    assert callable(handler)
    handler(signal.SIGINT, frame)


@contextlib.contextmanager
def ended_in_order() -> Iterator[None]:
    """Have signals be KeyboardInterrupt meanwhile: what has begun is to be ended in order."""
    if signal.getsignal(signal.SIGINT) is not _leave:
        yield  # already so, or another program's process
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)  # asyncio knows what that is
    for number in _NUMBERS[1:]:
        signal.signal(number, _as_ctrl_c)
    try:
        yield
    finally:
        for number in _NUMBERS:
            signal.signal(number, _leave)


def _be_deaf() -> None:
    for number in _NUMBERS:
        signal.signal(number, signal.SIG_IGN)


def leave_interrupted() -> NoReturn:
    """End now, deaf to more signals: the interpreter would take its time, or end by the signal."""
    _be_deaf()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(EXIT_INTERRUPTED)


class _NamedFile(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = STANDARD_OUTPUT
            raise


def give_up(stream: TextIO) -> None:
    """Write no more to a stream that failed: the interpreter would try once more when it ends."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
