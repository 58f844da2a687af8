"""A command that was interrupted says so, and ends with 130 however often it is interrupted."""

import subprocess
import sys

import pytest

INTERRUPTED = """
import signal, sys
from ottla.admin import cli
from ottla.admin.arguments.tree import Command
def nothing() -> None:
    raise KeyboardInterrupt
if {in_a_command}:
    sys.argv[1:] = ["nothing"]
else:
    cli.find = lambda *_: nothing()
code = cli.main(others={{"nothing": Command("__main__:nothing", "")}})
deaf = all(signal.getsignal(n) is signal.SIG_IGN for n in (signal.SIGINT, signal.SIGTERM))
print(code, deaf)
"""


@pytest.mark.parametrize("in_a_command", [True, False])
def test_a_second_interrupt_on_the_way_out_changes_nothing(in_a_command):
    code = INTERRUPTED.format(in_a_command=in_a_command)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr.strip()) == ("130 True\n", "ottla: interrupted")
