"""For all tests: Ctrl-C means Ctrl-C, and the collector leaves alone what stays for the whole run.

A shell lets its background jobs ignore SIGINT, and every child inherits that; the tests that
interrupt a command would wait for something that cannot happen.

Each simulated cluster ends with `gc.collect()`, which looks at every object of the process: the
modules, test items and Hypothesis alone made that 0.13 s of CPU, about 400 times. So they are
frozen once they are all there, and what later modules leave behind is frozen after each of them
(some tests call `gc.unfreeze()` at their end).
"""

import gc
import signal

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session):
    gc.disable()  # what is imported stays
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()
