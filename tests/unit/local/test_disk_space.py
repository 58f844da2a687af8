"""Disks on which nothing can be written, mounted for the test, and a program's last words there."""

import os
import subprocess
import sys

import pytest

from ottla.local import cluster_dir

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a tmpfs")


def mounted(folder, options, script):
    """Run Python with a tmpfs at a folder, which nobody else sees; return what it prints."""
    folder.mkdir(exist_ok=True)
    shell = f'mount -t tmpfs -o {options} tmpfs {folder} || exit 99; exec "$0" -c "$1" {folder}'
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", shell, sys.executable, script],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if done.returncode == 99 or "unshare:" in done.stderr:
        pytest.skip(f"no tmpfs can be mounted: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return done.stdout


ASK = """
import subprocess, sys
from pathlib import Path
from ottla.local import cluster_dir
folder = Path(sys.argv[1])
{before}
print(cluster_dir.disk_problem(folder))
print(cluster_dir.first_disk_problem([folder / "nosuch", folder]))
"""
FILL = """
try:
    (folder / "filler").write_bytes(bytes(20_000_000))
except OSError:
    pass
"""
MANY = """
try:
    for n in range(100):
        (folder / str(n)).touch()
except OSError:
    pass
"""
READ_ONLY = "subprocess.run(['mount', '-o', 'remount,ro', str(folder)], check=True)"


@AS_ROOT
@pytest.mark.parametrize(
    ("options", "before", "found"),
    [
        ("size=8m", "", "None"),
        ("size=8m", FILL, "0 bytes free on {}"),
        ("size=8m,nr_inodes=20", MANY, "no inodes free on {}, so no file can be created"),
        ("size=8m", READ_ONLY, "{} is on a read-only file system"),
    ],
    ids=["free", "full", "inodes", "read-only"],
)
def test_what_a_disk_lacks_is_named(tmp_path, options, before, found):
    folder = tmp_path / "disk"
    said = mounted(folder, options, ASK.format(before=before))
    assert said.splitlines() == [found.format(folder)] * 2


def test_a_folder_that_is_not_there_lacks_nothing(tmp_path):
    assert cluster_dir.disk_problem(tmp_path / "nosuch") is None


@AS_ROOT
@pytest.mark.parametrize("lost", ["", "print('a line that is lost', file=sys.stderr)"])
def test_last_words_are_written_where_the_log_can_grow_no_more(tmp_path, lost):
    script = """
import os, sys
from pathlib import Path
log = Path(sys.argv[1]) / "log"
log.write_text("a line of a log; " * 300)
out = os.open(log, os.O_WRONLY | os.O_APPEND)
try:
    while os.write(out, b"x" * 4096):
        pass
except OSError:
    pass
os.dup2(out, 2)
from ottla.broker.program import last_words
size = log.stat().st_size
try:
    SOMETHING
except OSError:
    pass
last_words("ottla broker: the reason")
print(log.read_text().splitlines()[-1])
print(log.stat().st_size == size)
""".replace("SOMETHING", lost or "pass")
    said = mounted(tmp_path / "disk", "size=1m", script)
    assert said == "ottla broker: the reason\nTrue\n"


def test_last_words_go_to_standard_error():
    code = "from ottla.broker.program import last_words; last_words('ottla broker: x')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("", "ottla broker: x\n")
