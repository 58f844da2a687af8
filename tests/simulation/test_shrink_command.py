"""A run that fails by a planted bug is shrunk by one command, and what it prints fails again."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.sim import __main__ as main_module
from ottla.sim import shrink
from ottla.sim.__main__ import parse_arguments, plan_of
from ottla.sim.cluster import run
from ottla.sim.drawn_plans import drawn
from ottla.sim.plans import Plan
from ottla.sim.shrink import Budget, Outcome, Ran, run_in_process, shrink_run

PLANTED = (sys.executable, str(Path(__file__).parent / "run_planted.py"))
DUPLICATES = (*PLANTED, "sequences_are_not_checked")


def test_a_planted_bug_is_shrunk(capsys):
    arguments = parse_arguments(
        shlex.split(
            "--seed 0 --seconds 6 --gap 0.7 --partitions 1 --consumers 0 --no-retry-producers 0 "
            "--no-operators --faults reset,kill"
        )
    )
    plan = plan_of(arguments, 0)
    assert shrink_run(plan, None, Budget(60.0, 2), DUPLICATES) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("fails: duplicate record")
    assert any(line.startswith("verified twice, the same trace") for line in lines)
    command = lines[-1].removeprefix("smaller: ")
    smaller = parse_arguments(shlex.split(command)[3:])
    assert smaller.seconds < plan.seconds
    assert smaller.only_faults
    taken_away = next(line for line in lines if "taken away: " in line)
    assert f"seconds {plan.seconds:g} -> {smaller.seconds:g}" in taken_away


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("while True: pass", "hang"),
        ("import time; time.sleep(100)", "hang"),
        ("raise ValueError('no')", "died: ValueError"),
        ("import os; os.kill(os.getpid(), 11)", "died: SIGSEGV"),
    ],
)
def test_a_run_that_comes_to_no_verdict_is_a_failure_like_another(code, kind):
    ran = run_in_process(Plan(0), (sys.executable, "-c", code), 0.5)
    assert ran.kinds == (ran.gravest,) == (kind,)


def test_drawn_sizes_are_spelled_out_before_a_run_is_shrunk(monkeypatch):
    given = []
    monkeypatch.setattr(main_module, "shrink_run", lambda *args: given.append(args) or 0)
    argv = ["--drawn", "--coordinated", "--seed", "12", "--shrink", "--shrink-seconds", "50"]
    assert main_module.main([*argv, "--skip-faults", "3", "--failure", "stuck"]) == 0
    plan, failure, budget = given[0]
    assert plan == replace(drawn(12, coordinated=True), skip_faults=("3",))
    assert (failure, budget) == ("stuck", Budget(50.0, 400))
    words = shlex.split(plan.replayed_by())[3:]
    assert "--drawn" not in words
    assert plan_of(parse_arguments(words), plan.seed) == plan


def test_a_run_that_passes_is_not_shrunk(monkeypatch, capsys):
    passed = Ran((), None, Outcome(), "", (), 1.0)
    monkeypatch.setattr(shrink, "run_in_process", lambda *_: passed)
    assert shrink_run(Plan(0), None, Budget(60.0, 3)) == 1
    assert "it passes" in capsys.readouterr().out


def test_one_fault_left_out_leaves_the_others_where_they_were():
    """Also an operation: what remains has the time and the kind it had before."""
    plan = Plan(
        3, brokers=4, seconds=8.0, mean_gap_s=1.0, partitions=1, producers=1, administrators=1
    )
    whole = run(plan)
    dropped = whole.faults[1].split()[1].removeprefix("#")
    operation = whole.operations[0].split()[1].removeprefix("#")
    less = run(replace(plan, skip_faults=(dropped,), skip_operations=(operation,)))
    before = {line.split()[1]: line.split()[::2][:2] for line in whole.faults}
    assert len(less.faults) >= len(whole.faults) - 3
    for line in less.faults:
        words = line.split()
        assert words[1] != f"#{dropped}"
        assert before.get(words[1], words[::2][:2]) == words[::2][:2]
    assert not any(line.split()[1] == f"#{operation}" for line in less.operations)
