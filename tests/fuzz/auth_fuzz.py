"""Fuzz authentication: the state machine of tests/property for as long as you like.

    python tests/fuzz/auth_fuzz.py --minutes 60

Each round has a seed of its own, which is printed with what it found. Exit code 1 after a finding.
"""

import argparse
import sys
import time
import traceback
from pathlib import Path

from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "property")]
from test_authentication_machine import AuthenticationMachine  # noqa: E402 - no package

EXAMPLES, STEPS = 400, 80


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, help="one round with this seed")
    args = parser.parse_args()
    ends = time.monotonic() + args.minutes * 60
    rounds = 0
    number = time.time_ns() % 10**9 if args.seed is None else args.seed
    wanted = settings(
        max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    while rounds == 0 or (args.seed is None and time.monotonic() < ends):
        machine = seed(number)(type("Machine", (AuthenticationMachine,), {}))
        try:
            run_state_machine_as_test(machine, settings=wanted)
        except Exception:  # noqa: BLE001 - whatever it is, it is a finding
            traceback.print_exc()
            print(f"found with --seed {number} after {rounds} rounds")
            return 1
        rounds += 1
        number += 1
    steps = rounds * EXAMPLES * STEPS
    print(f"{rounds} rounds, up to {steps:,} steps, nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
