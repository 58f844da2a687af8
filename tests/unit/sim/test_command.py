"""The command line: a plan's command runs that plan again."""

import shlex

import pytest

from ottla.sim.__main__ import main, parse_arguments, plan_of
from ottla.sim.drawn_plans import drawn
from ottla.sim.plans import Plan


@pytest.mark.parametrize(
    "plan",
    [
        Plan(7),
        Plan(
            7, brokers=5, seconds=12.5, partitions=2, producers=1, no_retry_producers=0, consumers=3
        ),
        Plan(7, mean_gap_s=1.3, operators=False, careless=True, faults=("kill", "pause")),
        Plan(7, faults=()),
        Plan(7, members=3, cooperative=True, log_dirs=3),
        Plan(7, only_faults=("3", "c2"), only_operations=("a0.7",)),
        Plan(7, only_faults=(), skip_faults=("4",), skip_operations=("m0.1", "a1.2")),
        *map(drawn, range(20)),
    ],
)
def test_the_printed_command_says_the_whole_plan(plan):
    words = shlex.split(plan.replayed_by())
    assert words[:3] == ["python", "-m", "ottla.sim"]
    read = parse_arguments(words[3:])
    assert plan_of(read, read.seed) == plan


def test_unknown_faults_are_a_usage_error(capsys):
    with pytest.raises(SystemExit) as caught:
        parse_arguments(["--faults", "kill,earthquake"])
    assert caught.value.code == 2
    assert "earthquake" in capsys.readouterr().err


@pytest.mark.parametrize("seeds", ["0", "-1"])
def test_no_run_is_a_usage_error(capsys, seeds):
    with pytest.raises(SystemExit) as caught:
        main(["--seeds", seeds])
    assert caught.value.code == 2
    assert f"--seeds: {seeds} runs show nothing" in capsys.readouterr().err


def test_until_stops_early_and_trace_prints_events(capsys):
    assert main(["--seed", "1", "--until", "1", "--faults", "none", "--trace"]) == 0
    out = capsys.readouterr().out
    assert "b0.1" not in out.splitlines()[0]
    assert " boot " in out
    assert "seed 1 passed" in out
