"""Three brokers, one killed: why leadership moved, if today's rules agree, state-change.log."""

import json
import re

import pytest

from ottla.model.journal_schema import JOURNAL_NAME
from support import command_line
from support.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.java, pytest.mark.timeout(240)]


def ottla(*words):
    done = command_line.ottla(*words)
    return done.returncode, done.stdout, done.stderr


def partitions(cluster, bootstrap):
    code, out, _ = ottla(
        "topics", "describe", "flights", "--bootstrap-server", bootstrap, "--output", "json"
    )
    return json.loads(out)[0]["partitions"] if code == 0 else []


def test_a_killed_leader_is_explained_from_the_journals(tmp_path):
    from support.cluster import OttlaCluster

    # The death is noticed without it; nobody else is to lose a session on a busy machine.
    with OttlaCluster(tmp_path, brokers=3, session_timeout_ms=10_000) as cluster:
        made = ottla(
            "topics", "create", "flights", "--partitions", 3, "--replication-factor", 3,
            "--bootstrap-server", cluster.bootstrap,
        )  # fmt: skip
        assert made[0] == 0, made
        asked = cluster.bootstrap
        before = until(lambda: partitions(cluster, asked), 60, "its partitions are known")
        victim = before[0]["leader"]
        cluster.kill(victim)
        others = ",".join(cluster.address(b) for b in cluster.ids if b != victim)

        def moved():
            now = partitions(cluster, others)
            return now if now and all(p["leader"] not in (victim, None) for p in now) else None

        after = until(moved, 60, "others lead all")[0]
        code, out, err = until(
            lambda: (
                (told := ottla("why", "flights-0", tmp_path, "--output", "json"))[0] == 0
                and json.loads(told[1])["now"]["leadership"]["leader"] == after["leader"]
                and told
            ),
            60,
            "the journals tell it",
        )
    assert (code, err) == (0, "")
    story = json.loads(out)
    assert story["now"]["leadership"]["leader_epoch"] == after["leader_epoch"]
    assert story["now"]["leadership"]["isr"] == after["isr"]
    lost = [
        c
        for c in story["entries"]
        if c["before"] and c["before"]["leader"] == victim and c["after"]["leader"] != victim
    ]
    assert lost
    gone = rf"process of broker {victim}(: | was gone: )connection refused at PLAINTEXT://"
    assert re.search(gone, lost[0]["because"]), lost[0]["because"]
    elected = next(c for c in story["entries"] if c["rule"] == "first live ISR member")
    assert {"replica": victim, "reason": "offline"} in elected["rejected"]
    code, out, err = ottla("history", "replay", tmp_path, "--diff")
    assert (code, out) == (0, "")
    assert "no difference" in err
    code, out, _ = ottla("why", "flights-0", "--dir", tmp_path)
    assert (code, "rejected" in out) == (0, True)
    _follows_kafkas_format(tmp_path, after["leader"])


def _follows_kafkas_format(folder, leader):
    logs = {b: (folder / f"broker-{b}" / "state-change.log").read_text() for b in range(3)}
    controllers = [b for b in logs if (folder / f"broker-{b}" / JOURNAL_NAME).exists()]
    head = r"\[[\d :,-]{23}\] INFO "
    assert any(
        re.search(
            head + r"\[Controller id=\d epoch=\d\] Changed partition flights-0 from "
            r"NewPartition to OnlinePartition with state LeaderAndIsr\(leader=",
            logs[b],
        )
        for b in controllers
    )
    assert re.search(
        head + rf"\[Broker id={leader}\] Leader flights-0 with topic id Some\([\w-]{{22}}\) starts "
        r"at leader epoch \d+ from offset 0 .* Previous leader (Some\(\d\)|None) and previous "
        r"leader epoch was \d+\.",
        logs[leader],
    )
    assert f"[Broker id={leader}] Handling LeaderAndIsr request correlationId" in logs[leader]
    assert re.search(
        rf"\[Broker id={leader}\] Add [1-9]\d* partitions and deleted 0 partitions from metadata "
        r"cache in response to UpdateMetadata request sent by controller \d epoch \d with "
        r"correlation id",
        logs[leader],
    )
