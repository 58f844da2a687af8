"""How descriptors are shared out between files and connections (F45)."""

import pytest

from ottla.model.descriptors import DescriptorBudget, split_descriptors


@pytest.mark.parametrize(
    ("limit", "files", "connections", "other"),
    [
        (48, 16, 16, 16),
        (256, 112, 112, 32),
        (1_024, 448, 448, 128),
        (4_096, 1_920, 1_920, 256),
        (65_536, 32_640, 32_640, 256),
        (1_048_576, 32_768, 1_015_552, 256),
    ],
)
def test_f45_files_and_connections_have_parts_of_their_own(limit, files, connections, other):
    assert split_descriptors(limit) == DescriptorBudget(files, connections, other)


def test_f45_the_parts_never_exceed_the_limit():
    for limit in range(48, 5_000):
        budget = split_descriptors(limit)
        assert budget.files + budget.connections + budget.other == limit
        assert budget.files >= 16
        assert budget.connections >= 16
        assert budget.other >= 16
