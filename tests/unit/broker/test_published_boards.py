"""Published boards and alerts: each metric they ask for is shown, or it is said why not."""

import re
from collections import Counter
from pathlib import Path

import pytest

from support.exported import exported
from support.published_boards import (
    MISSING,
    NOT_HERE,
    OF_OTHERS,
    OTHER,
    RENAMED,
    SHOWN,
    judged,
    renamed,
    sources,
)

PAGE = Path(__file__).resolve().parents[3] / "docs" / "METRICS.md"


@pytest.mark.parametrize("source", sources())
def test_each_metric_is_shown_or_it_is_said_why_not(source):
    asked = sources()[source]
    unknown = {name: labels for name, labels in asked.items() if judged(name, labels) is None}
    assert not unknown


def test_each_reason_is_needed():
    names = {name for asked in sources().values() for name in asked}
    reasons = OF_OTHERS | NOT_HERE
    assert not [what for what in reasons if not any(re.fullmatch(what, n) for n in names)]
    shown = exported().keys() | renamed().keys()
    assert not [n for n in shown & names if any(re.fullmatch(what, n) for what in reasons)]


def test_the_page_says_how_many_of_each_board_are_shown():
    text = PAGE.read_text(encoding="utf-8")
    for source, asked in sources().items():
        counts = Counter(judged(name, labels) for name, labels in asked.items())
        cells = [counts[how] for how in (SHOWN, RENAMED, OTHER, MISSING)]
        row = f"| `{source}` | {len(asked)} | {' | '.join(map(str, cells))} |"
        assert row in text, row
