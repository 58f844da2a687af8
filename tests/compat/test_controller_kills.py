"""kill -9 of the controller's broker amid a reassignment and a deletion: both are finished.

Two deaths; `make controller-kill-proof` has twenty.
"""

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(180)]


def test_a_reassignment_and_a_deletion_outlive_their_controllers(tmp_path):
    from proofs import controller_kill_proof

    amid = controller_kill_proof.run(
        tmp_path, rounds=1, seed=168, partitions=60, rate=200, session_ms=4000
    )
    assert amid, "both kills came too late to prove anything"
