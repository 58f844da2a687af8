"""An interrupt while a process is being started waits until that process is known."""

import os
import signal

import pytest

from ottla.zookeeper.embedded import interrupts_deferred


def interrupted(done):
    with interrupts_deferred():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("the rest of the block")


def test_an_interrupt_comes_after_the_block():
    done = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted(done)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == ["the rest of the block"]


def test_nothing_happens_without_one():
    before = signal.getsignal(signal.SIGINT)
    with interrupts_deferred():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
