"""The package as a stranger gets it: wheel and sdist built, checked, installed alone, and used.

    scripts/package            each Python from 3.11 to 3.14 that is found here
    scripts/package --quick    this Python; each other one that is here, in brief
    scripts/package --python /path/to/python3.14 [--python …]

The wheel is built from the sdist, and has the files of src/ that git has, no other ones.
For each Python: an empty environment, the wheel and what it needs (45 MB at most, with compiled
modules), then without Java and with an empty HOME: `ottla up`, records, kill -9 of a broker, all
records read back once, `ottla down`; README.md's test in an empty project. In brief: installed,
imported, `ottla --version`, one broker, one record. A Python that is not found is named, and not
tried. Exit code 0 only if all of it held.
"""

import argparse
import email
import os
import pwd
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.installed import (  # tests are no package
    Installed,
    imports_little,
    kill_and_read,
    tests_with_the_fixture,
    uv,
)

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MOST_MB = 45


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the others in brief")
    parser.add_argument("--python", action="append", default=[], help="another one, by its path")
    parser.add_argument("--out", type=Path, help="where wheel and sdist stay [dist; --quick: none]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-package-") as name:
        folder = Path(name)
        out = options.out or (folder / "dist" if options.quick else ROOT / "dist")
        wheel = build(out)
        if options.quick:
            one(wheel, sys.executable, folder / "this")
            others = [v for v in PYTHONS if v != "{}.{}".format(*sys.version_info)]
            for version in others:
                tried(version, found(version, downloads=False), wheel, folder, brief)
            return 0
        number = 0
        for version in PYTHONS:
            if not any(version in path for path in options.python):
                number += tried(version, found(version), wheel, folder, one)
        for path in options.python:
            number += tried(Path(path).name, path, wheel, folder, one)
    return 0 if number else 1


def tried(version: str, python: str | None, wheel: Path, folder: Path, how: Callable) -> bool:
    """Try the wheel with one Python; return whether there is one."""
    if python is None:
        print(f"Python {version}: not found here; not tried", flush=True)
        return False
    how(wheel, python, folder / version)
    return True


def found(version: str, *, downloads: bool = True) -> str | None:
    """Return a Python that is here, or that uv can bring; None if there is none."""
    home = pwd.getpwuid(os.getuid()).pw_dir  # HOME may be an empty folder for this run
    pyenv = Path(os.environ.get("PYENV_ROOT", f"{home}/.pyenv"))
    for path in sorted(pyenv.glob(f"versions/{version}.*/bin/python")):
        return str(path)
    try:
        if downloads:
            uv("python", "install", "--quiet", version)
        return uv("python", "find", "--no-python-downloads", version).strip()
    except AssertionError:
        return None


def build(out: Path) -> Path:
    """Build both, check what is in them, and return the wheel."""
    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    for old in [*out.glob("ottla-*.whl"), *out.glob("ottla-*.tar.gz")]:
        old.unlink()
    uv("build", "--quiet", "--out-dir", str(out), str(ROOT))
    (wheel,), (sdist,) = out.glob("ottla-*.whl"), out.glob("ottla-*.tar.gz")
    subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)],
        check=True, stdout=subprocess.DEVNULL, timeout=120,
    )  # fmt: skip
    tracked = set(subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=60,
    ).stdout.split())  # fmt: skip
    in_wheel = set(zipfile.ZipFile(wheel).namelist())
    ours = {name.removeprefix("src/") for name in tracked if name.startswith("src/")}
    code = {name for name in in_wheel if not re.match(r"ottla-[^/]+\.dist-info/", name)}
    assert code == ours, f"not the files that git has: {sorted(code ^ ours)}"
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    assert not tracked - in_sdist, f"not in the sdist: {sorted(tracked - in_sdist)}"
    check_metadata(wheel)
    print(
        f"{wheel.name} {wheel.stat().st_size / 1e6:.1f} MB, {sdist.name} "
        f"{sdist.stat().st_size / 1e6:.1f} MB; built and checked in "
        f"{time.monotonic() - began:.1f} s",
        flush=True,
    )
    return wheel


def check_metadata(wheel: Path) -> None:
    (name,) = [n for n in zipfile.ZipFile(wheel).namelist() if n.endswith(".dist-info/METADATA")]
    fields = email.message_from_bytes(zipfile.ZipFile(wheel).read(name))
    assert fields["License-Expression"] == "Apache-2.0"
    assert fields["Author"] == "Ottla developers"
    assert fields["Requires-Python"] == ">=3.11"
    assert fields["Description-Content-Type"] == "text/markdown"
    text = fields.get_payload()
    assert "](docs/" not in text, "a link that leads nowhere on a package index"
    assert fields["Version"] == wheel.name.split("-")[1]


def one(wheel: Path, python: str, folder: Path) -> None:
    """Install the wheel for one Python and use it."""
    began = time.monotonic()
    installed = Installed(folder)
    installed.create(python)
    installed.install(str(wheel), compiled=True)
    megabytes = installed.megabytes()
    assert megabytes <= MOST_MB, f"{megabytes:.1f} MB, of {MOST_MB}"
    version = installed.run("ottla", "--version").split()[1]
    assert version == wheel.name.split("-")[1]
    version_ms = imports_little(installed)
    up_s = kill_and_read(installed)
    tests_with_the_fixture(installed)
    full = installed.run("python", "-c", "import platform; print(platform.python_version())")
    print(
        f"Python {full.strip()}: {megabytes:.1f} MB installed; "
        f"ottla --version {version_ms:.0f} ms; "
        f"ottla up {up_s:.2f} s; a broker killed, nothing lost; a test with the fixture passed; "
        f"{time.monotonic() - began:.1f} s in all",
        flush=True,
    )


def brief(wheel: Path, python: str, folder: Path) -> None:
    """Install the wheel for one Python; import it, start one broker, write and read a record."""
    began = time.monotonic()
    installed = Installed(folder)
    installed.create(python)
    installed.install(str(wheel))
    run = installed.run
    assert run("ottla", "--version").split()[1] == wheel.name.split("-")[1]
    run("python", "-c", "import ottla; ottla.Cluster, ottla.SyncCluster")
    try:
        run("ottla", "up", "-n", "1")
        run("ottla", "topics", "create", "orders")
        run("ottla", "produce", "orders", "--quiet", text="one\n")
        read = run(
            "ottla", "consume", "orders", "--from-beginning", "-n", "1", "--timeout-ms", "20000"
        )
        assert read == "one\n", read
    finally:
        run("ottla", "down")
    full = run("python", "-c", "import platform; print(platform.python_version())").strip()
    print(f"Python {full}, in brief: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
