"""Without an extra everything else works, and what needs it says so in one line."""

import subprocess
import sys

import pytest

from ottla.admin.commands import top
from ottla.admin.connection import Target
from ottla.model.errors import StartupError

CODE = """
import os, sys
missing, *arguments = sys.argv[1:]
for name in missing.split(","):
    sys.modules[name] = None  # as if it were not installed
os.chdir({folder!r})
from ottla.__main__ import main
sys.argv = ["ottla", *arguments]
sys.exit(main())
"""


def run(folder, missing, *arguments):
    return subprocess.run(
        [sys.executable, "-c", CODE.format(folder=str(folder)), missing, *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("missing", "arguments", "line"),
    [
        (
            "cryptography",
            ("certs", "init", "--folder", "certs"),
            "certificates need cryptography, not installed here: pip install 'ottla[secure]'",
        ),
        (
            "cryptography",
            ("up", "--secure", "--dir", "data"),
            "certificates need cryptography, not installed here: pip install 'ottla[secure]'",
        ),
        (
            "aiokafka",
            ("demo", "--no-spark"),
            (
                "the demo needs aiokafka, not installed here: pip install 'ottla[all]', "
                "or 'ottla[demo]' for --no-spark"
            ),
        ),
    ],
)
def test_a_command_says_which_extra_it_needs(tmp_path, missing, arguments, line):
    done = run(tmp_path, missing, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"ottla: {line}\n")
    assert not list(tmp_path.rglob("*.pem"))


def test_the_screen_of_top_says_which_extra_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setattr(top.sys.stdout, "isatty", lambda: True)
    with pytest.raises(StartupError, match=r"pip install 'ottla\[top\]'"):
        top.top(Target(bootstrap_server="localhost:1"))


@pytest.mark.parametrize("missing", ["jwt", "cryptography"])
def test_a_broker_with_oauthbearer_says_which_extra_it_needs(tmp_path, missing):
    (tmp_path / "server.properties").write_text(
        "broker.id=1\nzookeeper.connect=127.0.0.1:1\nlog.dirs=logs\n"
        "listeners=SASL_PLAINTEXT://127.0.0.1:0\nsasl.enabled.mechanisms=OAUTHBEARER\n"
        "security.inter.broker.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism.inter.broker.protocol=OAUTHBEARER\n"
        "ottla.sasl.oauthbearer.unsigned.tokens.for.tests=true\n"
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config="
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="broker";\n'
    )
    done = run(tmp_path, missing, "broker", "run", "--config", "server.properties")
    line = f"OAUTHBEARER needs {missing}, not installed here: pip install 'ottla[secure]'"
    assert done.returncode == 1
    assert done.stderr.strip().endswith(line), done.stderr
    assert "Traceback" not in done.stderr


def test_what_the_extras_bring_is_imported_by_no_other_command(tmp_path):
    done = run(
        tmp_path,
        "cryptography,jwt,rich,textual,pydantic,pyspark,confluent_kafka",
        "status", "--dir", "nowhere",
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert "nowhere" in done.stderr
