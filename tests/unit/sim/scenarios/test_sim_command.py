"""`ottla sim check` and `ottla sim check --print`, as programs."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ottla.sim.scenarios import report
from ottla.sim.scenarios.scenario import Scenario
from ottla.sim.scenarios.scenario_run import Run
from ottla.sim.scenarios.search import Hours
from support.schemas import SCHEMAS, problems
from support.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]
COMMAND = (sys.executable, "-m", "ottla", "sim")
SHORT = ("--server", "replica.lag.time.max.ms=6000",
         "--server", "zookeeper.session.timeout.ms=6000")  # fmt: skip


def ottla_sim(*words, code=0, stdin=""):
    done = subprocess.run(
        [*COMMAND, *words], input=stdin, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == code, done
    return done


def test_the_help_lists_it():
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "help"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "sim" in done.stdout
    assert "settings, in simulated time" in " ".join(done.stdout.split())


def test_a_counterexample_as_json_as_a_page_and_again(tmp_path):
    page = tmp_path / "report.html"
    options = (*SHORT, "--producer", "acks=1", "--topic", "min.insync.replicas=2",
               "--promises", "kept", "--catch-up-seconds", "10")  # fmt: skip
    done = ottla_sim("check", *options, "--hours", "1", "--no-remedy", "--output", "json",
                     "--html", str(page), code=1)  # fmt: skip
    found = json.loads(done.stdout)
    assert problems(found, SCHEMAS["sim check"]) == []
    assert found["broken"] == ["kept"]
    (kept,) = found["promises"]
    small = kept["counterexample"]
    assert "<svg" in page.read_text()
    numbers = ",".join(map(str, small["faults"]))
    again = json.loads(
        ottla_sim("check", *options, "--seed", str(small["seed"]), "--only-faults", numbers,
                  "--seconds", str(small["seconds"]), "--output", "json", code=1).stdout
    )  # fmt: skip
    (once_more,) = again["promises"]
    assert once_more["counterexample"]["what"] == small["what"]
    assert once_more["counterexample"]["events"] == small["events"]


def test_none_found_is_said_with_the_hours(tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text(
        ottla_sim("check", "--print", *SHORT, "--topic", "min.insync.replicas=2").stdout
    )
    done = ottla_sim("check", str(mine), "--hours", "0.1")
    assert done.stdout.count("no counterexample in 0.1 simulated hours") == 4
    assert "min.insync.replicas=2" in done.stdout
    assert "How likely a find was" in done.stdout


def test_how_likely_a_find_was_is_said_where_none_was():
    """As many simulated hours as one loss takes in the mean find it in 63 of 100 searches."""
    rarest = max(known.hours for known in report.KNOWN_LOSSES)
    hours = Hours(seconds=rarest * 3600)
    said = list(report.likelihood(report.Findings(Scenario(), hours, {})))
    assert any(line.startswith("   63%  min.insync.replicas=1") for line in said), said
    enough = re.search(r"^--hours (\d+) catches each of them with 95%", said[-1])
    assert 2.99 * rarest < int(enough[1]) < 3.1 * rarest + 1
    hours.seconds = 4 * rarest * 3600
    assert not any("--hours" in line for line in report.likelihood(
        report.Findings(Scenario(), hours, {}))
    )  # fmt: skip
    assert list(report.likelihood(report.Findings(Scenario(), hours, {}, searched=False))) == []
    hours.first["kept"] = Run(1)
    assert list(report.likelihood(report.Findings(Scenario(), hours, {}))) == []


def test_a_user_s_own_files(tmp_path):
    server, producer = tmp_path / "server.properties", tmp_path / "producer.properties"
    server.write_text("broker.id=3\nlisteners=SSL://x:1\nmin.insync.replicas=2\n")
    producer.write_text("acks=all\nbootstrap.servers=x:1\n")
    files = ("--server-properties", str(server), "--producer-properties", str(producer))
    done = ottla_sim("check", "--print", *files, "--server", "min.insync.replicas=1")
    assert '"min.insync.replicas" = "1"' in done.stdout, "an option wins over the file"
    assert "not simulated: broker.id, listeners" in done.stderr
    assert "not simulated: bootstrap.servers" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (("check", "/nosuch.toml"), 1, "/nosuch.toml"),
        (("check", "--topic", "min.insync.replicas"), 2, "KEY=VALUE"),
        (("check", "--topic", "no.such=1"), 1, "no.such"),
        (("check", "--faults", "earthquake"), 1, "power-loss"),
        (("check", "--seconds", "3"), 2, "--only-faults"),
        (("check", "--only-faults", "x"), 2, "numbers"),
        (("check", "--hours", "0"), 2, "--hours"),
        (("check", "-"), 1, "`ottla sim check --print` prints one"),
        (("check", "-", "--topic", "a=b"), 1, "not a scenario"),
        (("check", "--server-properties", sys.executable), 1, "not a properties file"),
        (("check", "--hours", "1e400"), 2, "--hours"),
        (("check", "--only-faults", "1", "--seconds", "-5"), 2, "--seconds"),
        (("check", "--only-faults", "1", "--seconds", "1e12"), 2, "--seconds"),
        (("--seed", "1"), 2, "--seed"),
    ],
)
def test_bad_input_is_one_line(words, code, part):
    done = ottla_sim(*words, code=code, stdin="brokers = ")
    assert part in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def children(pid):
    """Return the processes that the threads of a process have started."""
    return [
        word for file in Path(f"/proc/{pid}/task").glob("*/children")
        for word in file.read_text().split()
    ]  # fmt: skip


def test_ctrl_c_prints_what_was_found_and_leaves_no_process():
    process = subprocess.Popen(
        [*COMMAND, "check", *SHORT, "--topic", "min.insync.replicas=2", "--hours", "1000"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        until(lambda: children(process.pid), 60, "workers", despite=(OSError,))
        time.sleep(4)
        # A thread may end between its name and its file.
        workers = until(lambda: children(process.pid), 60, "workers", despite=(OSError,))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=90)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, err
    assert "no counterexample in" in out
    assert "interrupted" in err
    assert workers
    until(lambda: not any(Path(f"/proc/{w}").exists() for w in workers), 20, "workers have ended")
