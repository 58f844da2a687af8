"""A command that was interrupted says so, and ends with 130 however often it is interrupted."""

import subprocess
import sys

import pytest

INTERRUPTED = """
import signal, sys
from ottla.admin import cli
if {caught_by_typer}:
    @cli.app.command()
    def nothing() -> None:
        raise KeyboardInterrupt
    sys.argv[1:] = ["nothing"]
else:
    def nothing(**_: object) -> None:
        raise KeyboardInterrupt
    cli.app = nothing
code = cli.main()
deaf = all(signal.getsignal(n) is signal.SIG_IGN for n in (signal.SIGINT, signal.SIGTERM))
print(code, deaf)
"""


@pytest.mark.parametrize("caught_by_typer", [True, False])
def test_a_second_interrupt_on_the_way_out_changes_nothing(caught_by_typer):
    code = INTERRUPTED.format(caught_by_typer=caught_by_typer)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr.strip()) == ("130 True\n", "ottla: interrupted")
