"""The names of the controller's metrics, beside those that Kafka 3.9.1 has."""

import subprocess
from pathlib import Path

import pytest

from ottla.controller.loop import METRICS
from support import kafka_tools

PROGRAM = Path(__file__).parents[1] / "support" / "ControllerStates.java"
pytestmark = [
    pytest.mark.java,
    pytest.mark.timeout(120),
    pytest.mark.skipif(bool(kafka_tools.why_not()), reason=kafka_tools.why_not() or ""),
]
NOT_HERE = {
    "ControllerShutdownRateAndTimeMs",  # of the process; here the loop ends with it
    "UncleanLeaderElectionEnableRateAndTimeMs",  # the broker's dynamic setting: not one event here
    "UpdateFeaturesRateAndTimeMs",  # answered by the handler
}


def test_each_kind_of_event_has_kafka_s_metric():
    done = subprocess.run(
        kafka_tools.command(str(PROGRAM)),
        capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    kafkas = set(done.stdout.split())
    assert len(kafkas) > 10
    assert set(METRICS.values()) == kafkas - NOT_HERE
