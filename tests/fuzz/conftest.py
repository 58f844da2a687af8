"""The modules beside this file are found by their names, by tests and by `fuzz.py` alike."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module")
def broker_target():
    """A broker to send streams to; the oracle is in `fuzz_broker`."""
    from fuzz_broker import BrokerTarget

    target = BrokerTarget()
    yield target
    target.close()
