"""R22: what log dirs remember of the broker's lives and of ZooKeeper, compared."""

import os

import pytest

from ottla.log.lives import Life, Stated, decode, went_back

KNOWN = Life(life="a", statement_zxid=20, zxid=30, controller_epoch=4)


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        (Stated("a", 20, 30, 4), ""),
        (Stated("b", 25, 31, 5), ""),
        (Stated("a", 20, 30, None), ""),
        (Stated("a", 19, 40, 4), "zxid 0x14 is gone"),
        (Stated("", 0, 40, 4), "is gone"),
        (Stated("a", 20, 29, 4), "saw zxid 0x1e"),
        (Stated("a", 20, 40, 3), "controller epoch 4"),
    ],
)
def test_zookeeper_went_back_if_it_is_older_than_any_dir_remembers(stated, told):
    found = went_back([Life(), KNOWN], stated)
    assert (told in found) if told else not found


@pytest.mark.parametrize(
    ("life", "stated", "last"),
    [
        (Life(), "", True),
        (Life(), "a", False),
        (Life(life="a"), "a", True),
        (Life(life="a"), "", False),
        (Life(life="a", next="b"), "a", True),
        (Life(life="a", next="b"), "b", True),
        (Life(life="a", next="b"), "c", False),
    ],
)
def test_a_dir_is_of_the_last_life_or_of_the_one_that_was_about_to_register(life, stated, last):
    assert life.is_last(stated) is last


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"life":1}', b"\xff", b"\0" * 50])
def test_a_damaged_note_is_of_no_known_life(data):
    assert decode(data) == Life()


def test_a_copied_or_overwritten_lock_file_is_another_one(kit, tmp_path):
    files = kit.world.files
    lock = tmp_path / ".lock"
    files.lock(str(lock)).release()
    known = files.lock_id(str(lock))
    files.lock(str(lock)).release()
    assert files.lock_id(str(lock)) == known, "to lock it changes nothing"
    lock.unlink()
    files.lock(str(lock)).release()
    other = files.lock_id(str(lock))
    assert other != known, "the inode may be the same"
    os.utime(lock, (1, 1))
    assert files.lock_id(str(lock)) != other, "as cp -a does it in place"
