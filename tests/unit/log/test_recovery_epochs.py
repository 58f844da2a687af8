"""After an unclean stop the batches say which epoch wrote them, whatever the checkpoint says."""

import pytest


@pytest.mark.parametrize("recovery_point", [0, 3])
def test_a_truncation_undone_by_power_loss_takes_the_later_epoch_with_it(kit, recovery_point):
    """Found by the simulator, seed 5086: the record of a lost epoch passed for a newer one's."""
    log = kit.open()
    kit.fill(log, 3, epoch=1)
    kit.fill(log, 2, epoch=2)
    path = kit.folder / f"{0:020d}.log"
    before_truncation = path.read_bytes()
    log.truncate_to(3)
    kit.fill(log, 2, epoch=5)
    log.flush()
    assert log.epochs.entries == [(1, 0), (5, 3)]
    log.abandon()
    path.write_bytes(before_truncation)

    log = kit.open(clean=False, recovery_point=recovery_point)

    assert log.log_end_offset == 5
    assert log.epochs.entries == [(1, 0), (2, 3)]
    assert log.end_offset_for_epoch(2) == (2, 5)


def test_epochs_before_the_recovered_segment_stay(kit):
    log = kit.open(segment_bytes=300)
    for epoch in (1, 2, 3, 4):
        kit.fill(log, 3, epoch=epoch)
    want = log.epochs.entries
    log.flush()
    log = kit.reopen(log, recovery_point=log.log_end_offset)
    assert log.epochs.entries == want == [(1, 0), (2, 3), (3, 6), (4, 9)]
