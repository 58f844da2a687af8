"""The same requests to Kafka 3.9 and to us: the same answers, the same end of the connection."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
import differential  # tests are no package

from support import kafka_tools

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(kafka_tools.why_not() is not None, reason=str(kafka_tools.why_not())),
]

LEAST = 5_000
"""So many requests are answered alike without any mask, at the least."""


def test_every_answer_is_kafkas_or_its_difference_has_a_reason(tmp_path):
    report = differential.run(tmp_path, short=True)
    print(report)
    assert not report.differing, "\n".join([*report.differing[:40], str(report)])
    assert report.equal >= LEAST, str(report)
