"""Ottla as a stranger has it: installed from a wheel into an environment of its own.

Its commands run with that environment's programs alone on the PATH, an empty HOME, no Java, and
nothing of this checkout.
"""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
RECORDS = 4000
VERSION_ROUNDS = 10


class Installed:
    """An environment made by uv, and commands in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.venv = folder / "venv"
        self.work = folder / "work"
        self.home = folder / "home"

    def create(self, python: str) -> None:
        for empty in (self.work, self.home):
            empty.mkdir(parents=True)
        uv("venv", "--quiet", "--no-python-downloads", "--python", python, str(self.venv))

    def install(self, *packages: str, compiled: bool = False) -> None:
        options = ["--compile-bytecode"] if compiled else []
        python = str(self.venv / "bin" / "python")
        uv("pip", "install", "--quiet", "--python", python, *options, *packages)

    def environment(self) -> dict[str, str]:
        """Return variables with which no Java and no other Python is found."""
        return {"HOME": str(self.home), "PATH": str(self.venv / "bin"), "JAVA_HOME": str(self.home)}

    def run(self, *command: str, code: int = 0, text: str = "") -> str:
        """Run a command in the work folder and return what it prints; its exit code is `code`."""
        done = subprocess.run(
            [str(self.venv / "bin" / command[0]), *command[1:]],
            env=self.environment(), cwd=self.work, input=text,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == code, f"{command}: {done}"
        assert "Traceback" not in done.stderr, f"{command}: {done.stderr}"
        return done.stdout

    def megabytes(self) -> float:
        """Return what the packages take on the disk, in MB, 10^6 bytes, without what a venv has."""
        (packages,) = self.venv.glob("lib/python*/site-packages")
        files = [path.lstat() for path in packages.rglob("*")]
        return sum(stat.st_blocks * 512 for stat in files) / 1e6


def uv(*arguments: str) -> str:
    done = subprocess.run(
        ["uv", *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"uv {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def imports_little(installed: Installed) -> float:
    """Check what `ottla --version` imports; return the median of its wall-clock times in ms."""
    modules = installed.run(
        "python", "-c",
        "import sys; sys.argv = ['ottla', '--version']\n"
        "from ottla.__main__ import main; main(); print(*sys.modules)",
    ).split()  # fmt: skip
    heavy = {"pydantic", "rich", "textual", "asyncio", "msgspec", "cryptography", "uvloop"}
    assert not heavy & set(modules), heavy & set(modules)
    times = []
    for _ in range(VERSION_ROUNDS):
        began = time.monotonic()
        installed.run("ottla", "--version")
        times.append((time.monotonic() - began) * 1000)
    return sorted(times)[VERSION_ROUNDS // 2]


def runs(pid: int) -> bool:
    """Return whether a process runs; one that has ended and waits for its parent does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def kill_and_read(installed: Installed) -> float:
    """Start a cluster, kill a leader amid producing, read everything back, stop it.

    Return the seconds that `ottla up` took.
    """
    run = installed.run
    pids: list[int] = []
    try:
        began = time.monotonic()
        run("ottla", "up")
        took = time.monotonic() - began
        run("ottla", "topics", "create", "orders", "--partitions", "3")
        lines = [f"order {number}" for number in range(RECORDS)]
        half = RECORDS // 2
        run("ottla", "produce", "orders", "--quiet", text="\n".join(lines[:half]) + "\n")
        brokers = json.loads(run("ottla", "status", "--output", "json"))["brokers"]
        pids = [broker["pid"] for broker in brokers]
        assert len(pids) == 3, brokers
        victim = next(broker for broker in brokers if broker["leads"])
        os.kill(victim["pid"], signal.SIGKILL)
        run("ottla", "produce", "orders", "--quiet", text="\n".join(lines[half:]) + "\n")
        run("ottla", "status", code=1)
        read = run(
            "ottla", "consume", "orders", "--from-beginning", "-n", str(RECORDS),
            "--timeout-ms", "20000",
        ).splitlines()  # fmt: skip
        assert sorted(read) == sorted(lines), f"{len(read)} lines, {len(set(read))} different"
    finally:
        run("ottla", "down")
    assert not [pid for pid in pids if runs(pid)]
    files = [path for path in installed.home.rglob("*") if path.is_file()]
    assert not files, f"left in the home folder: {files}"
    return took


def readme_test() -> str:
    """Return README.md's test of a cluster as a fixture."""
    (block,) = [
        str(found)
        for found in re.findall(
            r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL
        )
        if "ottla_cluster" in found
    ]
    return block


def tests_with_the_fixture(installed: Installed) -> None:
    """Run README.md's test in an empty project: pytest finds the plugin by its entry point.

    `-p ottla` names it, too: for projects that turn off the loading of all plugins that are there.
    """
    installed.install("pytest", "confluent-kafka")
    (installed.work / "test_orders.py").write_text(readme_test())
    plain = ("pytest", "-q", "-p", "no:cacheprovider", "test_orders.py")
    named = ("pytest", "-p", "ottla", *plain[1:])
    alone = ("pytest", "--disable-plugin-autoload", *named[1:])
    for command in (plain, named, alone):
        printed = installed.run(*command)
        assert re.search(r"^1 passed", printed, re.MULTILINE), printed
