"""Authentication beside Kafka's: the same frames get the same responses and the same end."""

import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

from oracle import sasl_scripts
from support import kafka_tools
from support.command_line import ottla
from support.sasl_clusters import USERS, SaslKafka, SaslOttla, sasl_settings

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.timeout(500),
    pytest.mark.skipif(bool(kafka_tools.why_not()), reason=kafka_tools.why_not() or ""),
]
AT_ONCE, TRIES = 24, 20


def answers(port, scripts, within_s):
    # Where time counts, few at once: each is to come between the others.
    with ThreadPoolExecutor(AT_ONCE if within_s == math.inf else 4) as pool:
        return list(pool.map(lambda script: in_time(port, script, within_s), scripts))


def in_time(port, script, within_s):
    """Run a script until it was as quick as it has to be; sessions end by time."""
    for _ in range(TRIES):
        with suppress(sasl_scripts.LateError):
            return sasl_scripts.run(port, script, within_s)
    raise AssertionError(f"{script} never took less than {within_s} s")


@contextmanager
def pair(folder, **more):
    """One broker of ours and one of Kafka's on one ZooKeeper: they share alice's credentials."""
    sasl = sasl_settings("PLAIN") | {"connection.failed.authentication.delay.ms": "20"}
    sasl |= {key.replace("_", "."): value for key, value in more.items()}
    with SaslOttla(folder / "ottla", 1, sasl=sasl) as ours:
        added = ottla("users", "add", "alice", "--password-file", "-", "-b", ours.bootstrap,
                      "--iterations", "4096", stdin=USERS["alice"])  # fmt: skip
        assert added.returncode == 0, added.stderr
        with SaslKafka(folder / "kafka", ids=[9], zookeeper=ours.zookeeper, sasl=sasl) as kafka:
            yield ours.sasl_ports[0], kafka.sasl_ports[9]


@pytest.fixture
def both(tmp_path):
    with pair(tmp_path) as ports:
        yield ports


@pytest.fixture
def with_sessions(tmp_path):
    with pair(tmp_path, connections_max_reauth_ms=str(sasl_scripts.SESSION_MS)) as ports:
        yield ports


def compared(both, scripts, at_once=1, within_s=math.inf):
    with ThreadPoolExecutor(at_once) as sides:
        ours, kafkas = sides.map(lambda port: answers(port, scripts, within_s), both)
    different = [
        f"{script}: {found} {expected}"
        for script, found, expected in zip(scripts, ours, kafkas, strict=True)
        if found != expected
    ]
    assert not different, f"{len(different)} of {len(scripts)}:\n" + "\n".join(different[:30])
    flat = [answer for answers in kafkas for answer in answers]
    assert {"closed"} < set(flat)
    assert "silent" not in flat
    return flat


def test_every_script_ends_as_with_kafka(both):
    scripts = list(sasl_scripts.scripts())
    assert len(scripts) > 2000
    compared(both, scripts, at_once=2)  # nothing depends on when a frame comes


def test_authenticating_again_ends_as_with_kafka(with_sessions):
    flat = compared(with_sessions, sasl_scripts.AGAIN, within_s=sasl_scripts.IN_TIME_S)
    lifetime = f"{sasl_scripts.SESSION_MS:016x}"
    assert any(answer.endswith(lifetime) for answer in flat), "no response names a lifetime"
