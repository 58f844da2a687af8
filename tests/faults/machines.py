"""Brokers on one machine, each with two log dirs and a shim; as root on file systems of their own.

With `disks` each log dir is an ext4 of its own in a file (loop device). Its power can be taken:
ext4's own shutdown, made to test recovery, throws away all that was not synced, files' pages and
journal alike, as the kernel had not written them yet. It can be filled to the last byte, too.
"""

import fcntl
import os
import shutil
import signal
import struct
import subprocess
from pathlib import Path
from typing import Any, Self

from faults.network import run
from faults.shim import CannotBeTriedError, Shim
from support.cluster import OttlaCluster

SESSION_S = 6
DIRS = ("d0", "d1")
EXT4_IOC_SHUTDOWN = 0x8004587D
WITHOUT_THE_JOURNAL = 2
DISK_BYTES = 96 * 2**20


class Disk:
    """A file system of its own in a file."""

    def __init__(self, image: Path, where: Path) -> None:
        self.image, self.where = image, where
        with image.open("wb") as file:
            file.truncate(DISK_BYTES)
        run("mkfs.ext4", "-q", "-F", str(image))
        where.mkdir(parents=True)
        self.mount()
        shutil.rmtree(where / "lost+found")

    def mount(self) -> None:
        # A minute between commits of the journal: what is durable is so because of an fsync.
        run("mount", "-o", "loop,commit=60", str(self.image), str(self.where))

    def unmount(self) -> None:
        run("umount", str(self.where))

    def power_off(self) -> None:
        """Throw away what was not synced."""
        fd = os.open(self.where, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", WITHOUT_THE_JOURNAL))
        finally:
            os.close(fd)

    def power_on(self) -> None:
        """Mount it anew: the journal is replayed."""
        self.unmount()
        self.mount()

    def fill(self) -> None:
        with (self.where / "filler").open("wb", buffering=0) as file:
            for size in (2**20, 4096, 1):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue

    def empty(self) -> None:
        (self.where / "filler").unlink()


def disks_or_why_not() -> str:
    """Return why no file systems can be made here, "" if they can."""
    if os.geteuid() != 0:
        return "file systems of their own can be mounted by root only"
    if shutil.which("mkfs.ext4") is None:
        return "no mkfs.ext4 (e2fsprogs)"
    if "ext4" not in Path("/proc/filesystems").read_text():
        return "this kernel has no ext4"
    return ""


class Machines(OttlaCluster):
    """Brokers 0..n-1 of ours, each with two log dirs and a shim."""

    def __init__(
        self,
        folder: Path,
        library: Path | None,
        brokers: int = 4,
        *,
        disks: bool,
        session_s: int = SESSION_S,
        zookeeper_server: str = "own",
        **settings: str,
    ) -> None:
        where = ",".join(str(folder / "broker-{broker}" / one) for one in DIRS)
        super().__init__(
            folder,
            brokers,
            session_timeout_ms=1000 * session_s,
            log_dirs=where,
            zookeeper_server=zookeeper_server,
            **settings,
        )
        folder.mkdir(parents=True, exist_ok=True)
        self._shims = (
            {b: Shim(library, folder / f"broker-{b}.faults") for b in self.ids} if library else {}
        )
        self.disks: dict[tuple[int, str], Disk] = {}
        self._with_disks = disks

    def __enter__(self) -> Self:
        try:
            if self._with_disks:
                for broker in self.ids:
                    for one in DIRS:
                        image = self.folder / f"broker-{broker}.{one}.img"
                        self.disks[broker, one] = Disk(image, self.dir(broker, one))
            super().__enter__()
        except BaseException:
            self.unmount()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.unmount()

    def unmount(self) -> None:
        for disk in self.disks.values():
            subprocess.run(["umount", "-l", str(disk.where)], capture_output=True, check=False)
        self.disks.clear()

    def launch(self, broker: int, config: Path) -> Any:
        environment = dict(os.environ)
        if self._shims:
            environment |= self._shims[broker].environment
        with self.log(broker).open("ab") as out:
            return subprocess.Popen(
                self.command(broker, config),
                stdout=out,
                stderr=out,
                start_new_session=True,
                env=environment,
            )

    def shim(self, broker: int) -> Shim:
        if not self._shims:
            raise CannotBeTriedError("no C compiler (cc, gcc, clang) to build the shim with")
        return self._shims[broker]

    def disk(self, broker: int, one: str) -> Disk:
        if not self.disks:
            raise CannotBeTriedError(disks_or_why_not() or "no file systems were made")
        return self.disks[broker, one]

    # --- folders ----------------------------------------------------------------------------------

    def dir(self, broker: int, one: str) -> Path:
        return self.data(broker) / one

    def replica(self, broker: int, partition: str) -> Path:
        """Return the folder of a replica, `topic-n`."""
        found = [self.dir(broker, one) / partition for one in DIRS]
        return next((path for path in found if path.is_dir()), found[0])

    def log_bytes(self, broker: int, partition: str) -> bytes:
        segments = sorted(self.replica(broker, partition).glob("*.log"))
        return b"".join(p.read_bytes() for p in segments)

    def replica_differences(self, topic: str, partitions: int) -> list[str]:
        wrong = []
        for p in range(partitions):
            name = f"{topic}-{p}"
            logs = {b: self.log_bytes(b, name) for b in self.ids if self.replica(b, name).is_dir()}
            if len(set(logs.values())) > 1:
                sizes = {b: len(data) for b, data in logs.items()}
                wrong.append(f"{name}: replicas differ, bytes by broker {sizes}")
        return wrong

    # --- power ------------------------------------------------------------------------------------

    def lose_power(self, *brokers: int) -> None:
        """Kill brokers and throw away what their disks had not synced."""
        disks = [self.disk(broker, one) for broker in brokers for one in DIRS]
        for broker in brokers:
            self.processes[broker].send_signal(signal.SIGKILL)
        for disk in disks:
            disk.power_off()
        for broker in brokers:
            self.processes[broker].wait(10)
        for disk in disks:
            disk.power_on()
