"""A slice of the command line proof: what is not there, and Ctrl-C at early moments."""

import pytest

pytestmark = [pytest.mark.java, pytest.mark.processes, pytest.mark.timeout(240)]


def test_what_goes_wrong_is_one_clear_line_and_changes_nothing(tmp_path):
    from proofs.command_line_proof import Proof, cluster, prove

    proof = Proof(tries=5, brief=True)
    with cluster(tmp_path / "data") as here:
        prove(proof, ["names", "interrupts"], here)
    assert len(proof.rows) > 50
    assert [(row.what, row.line, row.wrong) for row in proof.rows if row.wrong] == []
