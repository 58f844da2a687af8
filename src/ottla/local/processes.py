"""Processes on this machine: which of them are ours and alive, what they weigh, how they end.

Invariants: a pid alone names nothing, since pids are used again, so every process is known by its
pid *and* the moment it started; nothing is signalled that does not match both, or is not an Ottla
server of this user; a zombie is dead; every wait has a bound. Reads /proc; where there is none,
asks `ps`.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from functools import cache
from pathlib import Path

import msgspec

from ottla.model.errors import StartupError
from ottla.model.waits import waiting

KMSG_BYTES = 8192
"""of one record of the kernel's log, and more"""
POLL_S = 0.02
PS_WAIT_S = 5
EXEC_WAIT_S = 1.0
PRIVATE_UMASK = 0o077
JAVA_ZOOKEEPER = b"org.apache.zookeeper.server.ZooKeeperServerMain"
_LISTEN = "0A"
"""The state in /proc/net/tcp."""


class ProcessId(msgspec.Struct, frozen=True):
    """One process for all time: the pid, and when it started (in which boot) as the system says."""

    pid: int
    started: str


def _ps(pid: int, column: str) -> str:
    """Return what `ps` says of a process, nothing if it is gone; StartupError if `ps` fails."""
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments
            ["/bin/ps", "-o", f"{column}=", "-p", str(pid)],
            capture_output=True,
            text=True,
            timeout=PS_WAIT_S,
            check=False,
        )
        problem = done.stderr.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    if problem:
        raise StartupError(f"/bin/ps, which is asked where there is no /proc, failed: {problem}")
    return done.stdout.strip()


def _stat(pid: int) -> tuple[str, str] | None:
    """Return (state letter, start time) of a pid, or None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
        state, started = _ps(pid, "state"), _ps(pid, "lstart")
        return (state[:1], started) if state else None
    # The name in parentheses may hold anything; the fields after it are numbers and one letter.
    fields = text.rpartition(")")[2].split()
    return fields[0], f"{_boot()}:{fields[19]}"


@cache
def _boot() -> str:
    """Return which boot of this machine it is: start times count from it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]
    except OSError:
        return ""


def identify(pid: int) -> ProcessId | None:
    """Return who runs under `pid` now, or None."""
    found = _stat(pid)
    return None if found is None else ProcessId(pid, found[1])


def identify_child(pid: int) -> ProcessId:
    """Return who runs under the `pid` of a process that was just started.

    If that is not known, it is killed: no command could stop it later. StartupError then.
    """
    try:
        found, problem = identify(pid), "it is gone"
    except StartupError as error:
        found, problem = None, str(error)
    if found is None:
        kill_child(pid)
        raise StartupError(f"process {pid}, which was just started, is not known: {problem}")
    return found


def kill_child(pid: int) -> None:
    """Kill a process that was just started, without asking who it is."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def alive(process: ProcessId) -> bool:
    """Return whether exactly this process still runs."""
    found = _stat(process.pid)
    return found is not None and found[0] not in "ZX" and found[1] == process.started


def is_ours(process: ProcessId) -> bool:
    """Return whether it is a server that Ottla started, of this user: by its command line."""
    folder, give_up_s = Path(f"/proc/{process.pid}"), time.monotonic() + EXEC_WAIT_S
    try:
        # `exec` closes the pipe for which Popen waits a moment before there are arguments.
        while not (line := (folder / "cmdline").read_bytes()) and alive(process):
            if time.monotonic() > give_up_s:
                return False
            time.sleep(POLL_S)
        arguments, owner = line.split(b"\0"), folder.stat().st_uid
    except OSError:
        if Path("/proc/self/stat").exists():
            return False
        arguments = [os.fsencode(word) for word in _ps(process.pid, "command").split()]
        owner = int(_ps(process.pid, "uid") or -1)
    return owner == os.geteuid() and any(
        word in (b"ottla", JAVA_ZOOKEEPER) or (b"import " in word and b"ottla" in word)
        for word in arguments
    )


def paused(process: ProcessId) -> bool:
    """Return whether exactly this process is stopped by a signal (SIGSTOP)."""
    found = _stat(process.pid)
    return found is not None and found[0] == "T" and found[1] == process.started


def listening(ports: Collection[int]) -> dict[int, int]:
    """Return the processes that listen on these TCP ports, by port; none where there is no /proc.

    Those of other users are not found.
    """
    inodes: dict[str, int] = {}
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            port = int(fields[1].rpartition(":")[2], 16)
            if fields[3] == _LISTEN and port in ports:
                inodes[f"socket:[{fields[9]}]"] = port
    found: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*/fd") if inodes else ():
        try:
            for file in folder.iterdir():
                port_of = inodes.get(str(file.readlink()))
                if port_of is not None:
                    found[port_of] = int(folder.parent.name)
        except OSError:
            continue  # it has ended, or belongs to another user
    return found


def descriptors(pid: int) -> tuple[int, int] | None:
    """Return a process's open file descriptors and their limit; None where /proc does not tell."""
    try:
        count = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        limits = Path(f"/proc/{pid}/limits").read_text(encoding="ascii")
    except OSError:
        return None
    for line in limits.splitlines():
        if line.startswith("Max open files"):
            limit = line.split()[3]
            return (count, int(limit)) if limit.isdigit() else None
    return None


def resident_bytes(process: ProcessId) -> int | None:
    """Return a process's resident memory, or None if it is gone."""
    if not alive(process):
        return None
    try:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    except OSError:
        text = _ps(process.pid, "rss")
        return int(text) * 1024 if text.isdigit() else None
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return None


def private(path: str, flags: int) -> int:
    """Open a file, for `open`'s `opener`; a new one is its user's alone."""
    return os.open(path, flags, 0o600)


def spawn(
    arguments: Sequence[str], log: Path, *, environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, its output appended to `log`.

    A terminal's Ctrl-C does not reach it: whoever started it ends it. Its files are its user's
    alone, as far as it does not say otherwise.
    """
    with open(log, "ab", opener=private) as out:
        return subprocess.Popen(  # noqa: S603 - our own programs
            list(arguments),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            env=environment,
            umask=PRIVATE_UMASK,
        )


def send_signal(process: ProcessId, number: int) -> bool:
    """Signal exactly this process; False if it is gone, or none of ours."""
    try:
        # What is looked at is what gets the signal, whoever has the pid by then.
        held = os.pidfd_open(process.pid) if hasattr(os, "pidfd_open") else None
    except OSError:
        held = None
    try:
        if not alive(process) or not is_ours(process):
            return False
        if held is None:
            os.kill(process.pid, number)
        else:
            signal.pidfd_send_signal(held, number)
    except ProcessLookupError:
        return False
    finally:
        if held is not None:
            os.close(held)
    return True


def killed_for_memory(pid: int) -> bool:
    """Return whether the kernel's log says that it killed this process for lack of memory.

    False where the log cannot be read: many systems let only root do so.
    """
    try:
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        while line := os.read(log, KMSG_BYTES):
            if b"Killed process %d (" % pid in line:
                return True
    except OSError:  # BlockingIOError: that was all; another one: records were overwritten
        return False
    finally:
        os.close(log)
    return False


def wait_gone(processes: Sequence[ProcessId], timeout_s: float) -> list[ProcessId]:
    """Wait until all are gone; return those that are not after `timeout_s`."""
    return _wait(processes, timeout_s, lambda p: not alive(p), "exit")


def wait_paused(processes: Sequence[ProcessId], timeout_s: float) -> list[ProcessId]:
    """Wait until SIGSTOP has stopped all; return those that run on after `timeout_s`.

    A process that waits for a core stops when it is to get one.
    """
    return _wait(processes, timeout_s, lambda p: not alive(p) or paused(p), "stop")


def _wait(
    processes: Sequence[ProcessId], timeout_s: float, done: Callable[[ProcessId], bool], what: str
) -> list[ProcessId]:
    deadline = time.monotonic() + timeout_s
    with waiting() as wait:
        while True:
            for process in processes:
                # A child of ours stays a zombie until it is asked for.
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
            left = [p for p in processes if not done(p)]
            if not left or time.monotonic() > deadline:
                return left
            pids = ", ".join(str(p.pid) for p in left)
            wait.text = f"process {pids} to {what}, for {timeout_s:g} s at most"
            time.sleep(POLL_S)


def stop_children(children: Sequence[ProcessId], timeout_s: float) -> None:
    """Stop processes that were just started, also where it is not known whether they run."""
    try:
        stop(children, timeout_s)
    except StartupError:
        for child in children:
            kill_child(child.pid)


def stop(processes: Sequence[ProcessId], timeout_s: float) -> list[ProcessId]:
    """Ask all to end, wait, and end the rest by force; return those that had to be forced."""
    for process in processes:
        send_signal(process, signal.SIGCONT)
        send_signal(process, signal.SIGTERM)
    stubborn = wait_gone(processes, timeout_s)
    # One that is not ours gets no signal, and would be waited for in vain.
    wait_gone([process for process in stubborn if send_signal(process, signal.SIGKILL)], 10)
    return stubborn
