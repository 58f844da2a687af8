"""A coordinator keeps the response token of a request that waits, never a caller's function."""

import inspect

import pytest

from ottla.coordinators.group_coordinator import GroupCoordinator
from ottla.coordinators.transaction_coordinator import TransactionCoordinator
from ottla.coordinators.transaction_verifier import TransactionVerifier


@pytest.mark.parametrize("shell", [GroupCoordinator, TransactionCoordinator, TransactionVerifier])
def test_no_request_brings_a_function(shell):
    for name, method in inspect.getmembers(shell, inspect.isfunction):
        if not name.startswith("_"):
            for parameter in inspect.signature(method).parameters.values():
                assert "Call" not in str(parameter.annotation), f"{name}: {parameter}"
