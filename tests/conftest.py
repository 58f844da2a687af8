"""For all tests: Ctrl-C is Ctrl-C, examples have no deadline, the collector leaves modules alone.

A shell lets its background jobs ignore SIGINT, and every child inherits that; the tests that
interrupt a command would wait for something that cannot happen.

Each simulated cluster ends with `gc.collect()`, which looks at every object of the process: the
modules, test items and Hypothesis alone made that 0.13 s of CPU, about 400 times. So they are
frozen once they are all there, and what later modules leave behind is frozen after each of them
(some tests call `gc.unfreeze()` at their end).

The files that take longest come first where several processes share them (scripts/test).
"""

import gc
import os
import shutil
import signal
import tempfile
from collections import Counter

import pytest
from hypothesis import settings

from support import spark_java

# Where reassignments keep the way back: not among those of whoever runs the tests.
STATE_HOME = os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="ottla-state-")

# JVMs of Kafka and Spark compile less: most of them run for seconds.
os.environ.setdefault("OTTLA_QUICK_JAVA", "yes")
os.environ.setdefault("SPARK_SUBMIT_OPTS", spark_java.options())

# A busy machine makes any example slow; each test has a timeout of its own. For a long search:
# pytest tests/property --hypothesis-profile thorough
settings.register_profile("ottla", deadline=None, max_examples=60)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.load_profile("ottla")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# What a test with this mark takes on two cores that others use, too.
SECONDS = {"slow": 25, "spark": 7, "java": 4, "processes": 2}


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
    """With --no-loadscope-reorder put the files that take longest first.

    A worker that began the longest file last would go on for a minute after the others. A file's
    tests take as many seconds as their marks say, about.
    """
    if getattr(config.option, "loadscopereorder", True):
        return
    seconds = Counter()
    for item in items:
        marks = [mark.name for mark in item.iter_markers() if mark.name in SECONDS]
        seconds[item.path] += max((SECONDS[mark] for mark in marks), default=1)
    items.sort(key=lambda item: -seconds[item.path])


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()
