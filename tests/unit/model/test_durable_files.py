"""Files that are replaced whole, and what is on the disk when that returns."""

import errno
import os
from pathlib import Path

import pytest

from ottla.model.durable_files import replace_file, replacing, unfinished


@pytest.fixture
def synced(monkeypatch):
    """The paths that were synced, in order."""
    paths = []
    fsync = os.fsync

    def noted(descriptor):
        paths.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return paths


def test_the_content_is_synced_before_it_takes_the_name_and_the_name_after(tmp_path, synced):
    file = tmp_path / "f"
    file.write_bytes(b"old")
    replace_file(file, b"new")
    assert file.read_bytes() == b"new"
    assert synced == [str(unfinished(file)), str(tmp_path)]
    assert list(tmp_path.iterdir()) == [file]


def test_a_failure_keeps_the_file_and_leaves_nothing_else(tmp_path, monkeypatch):
    file = tmp_path / "f"
    file.write_bytes(b"old")

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(file, b"new")
    with pytest.raises(KeyboardInterrupt), replacing(file):
        raise KeyboardInterrupt
    assert (list(tmp_path.iterdir()), file.read_bytes()) == ([file], b"old")


def test_a_private_file_is_never_open_to_others(tmp_path):
    """Not even where a killed writer left an unfinished file that is."""
    file = tmp_path / "f"
    unfinished(file).write_bytes(b"left behind")
    with replacing(file, 0o600) as part:
        assert (part.stat().st_mode & 0o777, part.read_bytes()) == (0o600, b"")
    assert file.stat().st_mode & 0o777 == 0o600
