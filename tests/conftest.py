"""For all tests: Ctrl-C is Ctrl-C, examples have no deadline, the collector leaves modules alone.

A shell lets its background jobs ignore SIGINT, and every child inherits that; the tests that
interrupt a command would wait for something that cannot happen.

Each simulated cluster ends with `gc.collect()`, which looks at every object of the process: the
modules, test items and Hypothesis alone made that 0.13 s of CPU, about 400 times. So they are
frozen once they are all there, and what later modules leave behind is frozen after each of them
(some tests call `gc.unfreeze()` at their end).

Files with slow tests come first where several processes share the files (scripts/test).
"""

import gc
import os
import shutil
import signal
import tempfile
from collections import Counter

import pytest
from hypothesis import settings

# Where reassignments keep the way back: not among those of whoever runs the tests.
STATE_HOME = os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="ottla-state-")

# Brokers of Kafka compile less: most of them run for a few seconds (`support/kafka39.py`).
os.environ.setdefault("OTTLA_QUICK_JAVA", "yes")

# A busy machine makes any example slow; each test has a timeout of its own.
settings.register_profile("ottla", deadline=None)
settings.load_profile("ottla")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure(config):
    shutil.rmtree(STATE_HOME, ignore_errors=True)


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
def pytest_collection_modifyitems(config, items):
    """With --no-loadscope-reorder put files with slow tests first, then those with many tests.

    A worker takes the next files while two tests are left to it: if these took a minute each at the
    end, the other worker would have nothing to do meanwhile.
    """
    if getattr(config.option, "loadscopereorder", True):
        return
    count = Counter(item.path for item in items)
    slow = {
        item.path for item in items for mark in ("slow", "spark") if item.get_closest_marker(mark)
    }
    items.sort(key=lambda item: (item.path not in slow, -count[item.path]))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()
