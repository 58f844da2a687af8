"""The garbage collector's two settings: left alone unless a server settled it."""

import gc

import pytest

from ottla.net import garbage


@pytest.fixture(autouse=True)
def _as_before(monkeypatch):
    thresholds, enabled = gc.get_threshold(), gc.isenabled()
    gc.unfreeze()  # tests/conftest.py has frozen what was there
    monkeypatch.setattr(garbage, "_settled", False)
    yield
    gc.set_threshold(*thresholds)
    if enabled:
        gc.enable()
    gc.unfreeze()


def test_a_server_begins_with_what_its_modules_made_frozen():
    gc.disable()  # as `ottla.__main__` does before it imports them
    made = [[n] for n in range(5000)]
    garbage.begin()
    assert gc.isenabled()
    assert gc.get_threshold() == garbage.THRESHOLDS
    assert gc.get_freeze_count() >= len(made)


def test_nothing_is_changed_in_a_process_that_was_not_settled():
    with garbage.growing():
        assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_nothing_is_collected_while_knowledge_grows_and_it_is_not_visited_again():
    garbage.settle()
    assert gc.get_threshold() == garbage.THRESHOLDS
    before = gc.get_freeze_count()
    assert before > 0
    with garbage.growing():
        assert not gc.isenabled()
        grown = [[n] for n in range(5000)]
        with garbage.growing():
            assert not gc.isenabled()
        assert not gc.isenabled(), "an inner one leaves it to the outer one"
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(grown)


def test_the_collector_works_again_after_a_failure():
    garbage.settle()
    with pytest.raises(ZeroDivisionError), garbage.growing():
        raise ZeroDivisionError
    assert gc.isenabled()
