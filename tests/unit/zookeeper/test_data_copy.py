"""The copy of a server's znodes: whole or not there, and the folder copied from as it was."""

import copy
import random

import pytest

from ottla.model.errors import StartupError
from ottla.sim.files import DiedError, SimFiles
from ottla.zookeeper import data_copy, txn_log
from ottla.zookeeper.database import Database
from support.kept_znodes import Only, opened, picture, written

SOURCE, TARGET = "/data", "/copied/there"


def files_below(disk, folder):
    return {
        path: bytes(inode.data)
        for path, inode in disk.inodes.items()
        if path.startswith(f"{folder}/version-2/")
    }


def target(disk) -> dict:
    database = Database(Only(disk), TARGET)
    database.open()
    database.release()
    return picture(database)


@pytest.mark.parametrize("snapshot_transactions", [100_000, 4])
def test_the_last_state_is_copied_into_one_snapshot(snapshot_transactions):
    disk, pictures = written(4, 3, snapshot_transactions)
    before = files_below(disk, SOURCE)
    found = data_copy.copy(Only(disk), SOURCE, TARGET)
    assert found.zxid == 12
    assert found.znodes == len(pictures[-1])
    assert found[2:] == (0, "", 0)
    assert files_below(disk, SOURCE) == before
    assert list(files_below(disk, TARGET)) == [f"{TARGET}/version-2/snapshot.c"]
    assert disk.children(TARGET) == ["version-2"]
    assert target(disk) == pictures[-1]
    assert data_copy.contents(Only(disk), TARGET) == found
    assert picture(opened(disk)) == pictures[-1]


def test_what_cannot_be_copied_is_one_line_and_leaves_nothing():
    disk, _ = written(3, 2)
    with pytest.raises(StartupError, match=r"/nowhere is no dataDir"):
        data_copy.copy(Only(disk), "/nowhere", TARGET)
    running = Database(Only(disk), SOURCE)
    running.open()
    with pytest.raises(StartupError, match="in use by another server; stop it first"):
        data_copy.copy(Only(disk), SOURCE, TARGET)
    running.release()
    log = f"{SOURCE}/version-2/log.1"
    entries = txn_log.read(bytes(disk.inodes[log].data), log).entries
    disk.flip_bit(log, entries[1].position + 30)
    with pytest.raises(StartupError, match="damage at position"):
        data_copy.copy(Only(disk), SOURCE, TARGET)
    disk.flip_bit(log, entries[1].position + 30)
    disk.fail(TARGET, ["write"], times=1)
    with pytest.raises(StartupError, match=TARGET):
        data_copy.copy(Only(disk), SOURCE, TARGET)
    assert not data_copy.has_znodes(SimFiles(disk), TARGET)
    data_copy.copy(Only(disk), SOURCE, TARGET)
    with pytest.raises(StartupError, match="has znodes already"):
        data_copy.copy(Only(disk), SOURCE, TARGET)
    disk.inodes[f"{SOURCE}/version-2/snapshot.0.gz"] = disk.inodes[log]
    with pytest.raises(StartupError, match="is compressed"):
        data_copy.copy(Only(disk), SOURCE, "/other")


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_copy_that_is_cut_short_has_no_znodes_and_is_made_again(power_loss):
    """Death at each file operation; with a loss of power, the copy is there only if it is whole."""
    rng, steps, there = random.Random(3), 0, 0
    source, pictures = written(2, 2)
    source.commit()
    log = SimFiles(source).open(f"{SOURCE}/version-2/log.1")
    log.truncate(10_000)  # without most of the zeros that follow
    log.fsync()
    while True:
        disk = copy.deepcopy(source)
        files = SimFiles(disk)
        files.last_operations = steps
        world = Only(disk)
        world.files = files
        try:
            data_copy.copy(world, SOURCE, TARGET)
        except DiedError:
            files.kill()
        else:
            break
        if power_loss:
            disk.power_loss(rng)
        if data_copy.has_znodes(SimFiles(disk), TARGET):
            there += 1
        else:
            data_copy.copy(Only(disk), SOURCE, TARGET)
        assert target(disk) == pictures[-1], steps
        assert picture(opened(disk)) == pictures[-1], steps
        steps += 1
    assert steps > 30
    assert there > 0, "it died after the copy was there"
