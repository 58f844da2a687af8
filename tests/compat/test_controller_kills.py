"""kill -9 of the controller's broker amid a reassignment and a deletion: both are finished.

Two deaths; `make controller-kill-proof` has twenty.
"""

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

TRIES = 3
"""On busy cores the work may be done before the test has its turn to kill."""


def test_a_reassignment_and_a_deletion_outlive_their_controllers(tmp_path):
    from proofs import controller_kill_proof

    for number in range(TRIES):
        # One election for one death: nobody else may lose a session meanwhile.
        amid = controller_kill_proof.run(
            tmp_path / str(number),
            rounds=1,
            seed=168 + number,
            partitions=60,
            rate=200,
            session_ms=8000,
        )
        if amid:
            return
    raise AssertionError("all kills came too late to prove anything")
