"""A quick part of the fault proof (fault_proof.py): F18, F19 and F23 on real processes."""

import json

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.java, pytest.mark.timeout(240)]


def test_broken_disks_torn_writes_and_clocks_that_jump(tmp_path, capfd):
    """F18, F19, F23, without root: nothing acknowledged is lost, the brokers live on."""
    from faults.shim import CannotBeTriedError, compile_shim
    from proofs.fault_proof import on_one_machine

    try:
        compile_shim(tmp_path)
    except CannotBeTriedError as reason:
        pytest.skip(str(reason))
    wrong = on_one_machine(tmp_path, ["F18", "F19", "F23"], 1, quick=True)
    said = capfd.readouterr().out
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert [(line["fault"], line["verdict"]) for line in lines] == [
        ("F18", "held"), ("F19", "held"), ("F23", "held"),
    ], said  # fmt: skip
    assert wrong == 0, said
