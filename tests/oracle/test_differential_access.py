"""Every request with every permission given, missing, denied and replaced: as Kafka (F38)."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
import differential_access  # tests are no package

from support import kafka_tools

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.timeout(800),
    pytest.mark.skipif(kafka_tools.why_not() is not None, reason=str(kafka_tools.why_not())),
]

LEAST_ALLOWED, LEAST_DENIED = 2000, 4000
"""So many answers are equal, without and with a denial in them, at the least."""


def test_every_answer_to_every_permission_is_kafkas(tmp_path):
    report = differential_access.run(tmp_path)
    print(report)
    assert not report.differing, "\n".join([*report.differing[:40], str(report)])
    assert report.allowed >= LEAST_ALLOWED, str(report)
    assert report.denied >= LEAST_DENIED, str(report)
