"""The command line is light: a command imports what it needs and nothing else.

Counted in modules, so that it holds on a busy machine, too; `benchmarks/cli.py` measures time.
"""

import json
import subprocess
import sys

import pytest

NOBODY = ("--bootstrap-server", "no-address")
"""Refused after all is imported that speaks to brokers."""

GRAMMAR = {"click"}
PROTOCOL = {"click", "msgspec"}
RECORDS = PROTOCOL | {"google_crc32c", "cramjam"}
INCIDENTAL = {"typing_extensions", "cython_runtime", "sitecustomize"}
"""Imported by those of others, where they are there, or by the interpreter (Debian's has one)."""

# How many modules of ours, and of whom else. The numbers only ever go down.
COMMANDS = {
    ("--help",): (11, GRAMMAR),
    ("--version",): (12, GRAMMAR),
    ("nosuch",): (12, GRAMMAR),
    ("topics", "--help"): (11, GRAMMAR),
    ("topics", "list", "--help"): (18, GRAMMAR),
    ("up", "--help"): (16, GRAMMAR),
    ("topics", "list", *NOBODY): (46, PROTOCOL),
    ("topics", "describe", "t", *NOBODY): (46, PROTOCOL),
    ("configs", "describe", "--topic", "t", *NOBODY): (42, PROTOCOL),
    ("groups", "list", *NOBODY): (46, PROTOCOL),
    ("groups", "lag", "g", *NOBODY): (46, PROTOCOL),
    ("txn", "list", *NOBODY): (44, PROTOCOL),
    ("reassign", "list", *NOBODY): (52, PROTOCOL),
    ("log-dirs", *NOBODY): (48, PROTOCOL),
    ("status", *NOBODY): (46, PROTOCOL),
    ("produce", "t", *NOBODY): (49, RECORDS),
    ("consume", "t", *NOBODY): (62, RECORDS),
    ("dump-log", "/dev/null"): (40, RECORDS),
    ("why", "t-0", "--dir", "/nosuch"): (38, PROTOCOL),
}
CODE = """
import json, sys
from ottla.__main__ import main
sys.argv = ["ottla", *json.loads(sys.argv[1])]
main()
print(json.dumps(list(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda a: " ".join(a[:3]))
def test_a_command_imports_little(arguments):
    done = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps(arguments)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    modules = json.loads(done.stderr.splitlines()[-1])
    most, others = COMMANDS[arguments]
    ours = [m for m in modules if m.startswith("ottla.")]
    assert len(ours) <= most, ours
    roots = {m.partition(".")[0] for m in modules if not m.startswith("_")}
    assert roots - set(sys.stdlib_module_names) - {"ottla"} - INCIDENTAL <= others
    if others == GRAMMAR and "--version" not in arguments:
        assert not roots & {"asyncio", "logging", "subprocess", "socket"}
