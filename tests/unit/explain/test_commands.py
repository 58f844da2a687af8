"""`ottla why` and `ottla history replay` as typed: what stdout, stderr and the exit code say."""

import json
import logging
import re
from pathlib import Path

import pytest

from ottla.controller import elections, failover
from ottla.explain.journals import WAY_OUT
from ottla.explain.timestamps import UnknownTimeError, parse_time, time_text
from ottla.model.journal_schema import JOURNAL_NAME
from support.schemas import SCHEMAS, problems


def test_why_tells_the_story_of_all_brokers_journals(told, ottla):
    folder = told("controller_failover").folder
    code, out, err = ottla("why", "t-0", "--dir", folder)
    assert (code, err) == (0, "")
    text = re.sub(r"\s+", " ", out)
    assert "2, epoch 2" in text
    assert "1 → none" in text
    assert "none → 2" in text
    assert "broker 2 became controller (epoch 2) and found broker 1 not registered" in text
    assert "rejected: 1 (offline), 3 (later in the assignment)" in text


def test_why_as_json_has_the_line_it_came_from(told, ottla):
    journal = told("broker_failure")
    code, out, _ = ottla("why", "t-1", journal.folder, "--output", "json")
    told_ = json.loads(out)
    assert code == 0
    assert told_["topic_id"]
    assert told_["now"]["leadership"]["leader"] == 1
    (first,) = [
        c for c in told_["entries"] if c["before"] and c["before"]["leader"] == 2
        and c["after"]["leader"] == 3
    ]  # fmt: skip
    assert first["rule"] == "first live ISR member"
    assert first["rejected"][0] == {"replica": 2, "reason": "offline"}
    file, _, number = first["line"].rpartition(":")
    lines = Path(file).read_text().splitlines()
    assert json.loads(lines[int(number) - 1])["partition"] == "t-1"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["why", "t-9"], 1, "no journal knows t-9; it knows t-0"),
        (["why", "other-0"], 1, "no journal knows other-0; the topics are: t"),
        (["why", "flights"], 2, "'flights' is no TOPIC-PARTITION"),
        (["why", "t-0", "--at", "yesterday"], 1, "'yesterday' is not a time: write 12:01:07"),
        (["history", "replay", "--until", "25:00"], 1, "'25:00' is not a time"),
    ],
)
def test_what_cannot_be_told_is_one_line(told, ottla, words, code, said):
    folder = told("broker_failure").folder
    got, out, err = ottla(*words, "--dir", folder)
    assert (got, out) == (code, "")
    assert said in err
    assert err.count("\n") == 1


def test_no_journal_at_all(tmp_path, ottla):
    code, out, err = ottla("why", "t-0", "--dir", tmp_path)
    assert (code, out) == (1, "")
    assert err.startswith(f"ottla: no journal in {tmp_path}")


@pytest.mark.parametrize(
    "words", [["history", "replay"], ["history", "replay", "--diff"], ["why", "t-0"]]
)
@pytest.mark.parametrize("content", [b"", b"\x00rubbish\n" * 3, b"{}\n"])
def test_a_file_that_is_no_journal_answers_nothing(tmp_path, ottla, words, content):
    file = tmp_path / JOURNAL_NAME
    file.write_bytes(content)
    code, out, err = ottla(*words, file)
    assert (code, out) == (1, "")
    assert err == f"ottla: no line of a controller's journal in {file}; {WAY_OUT}\n"


def test_a_moment_before_the_first_line(told, ottla):
    folder = told("broker_failure").folder
    code, out, err = ottla("history", "replay", folder, "--diff", "--until", "1999-01-01T00:00:00")
    assert (code, out) == (1, "")
    assert "nothing was written until then; the first is of " in err


def test_replay_shows_the_cluster_and_later_lines_are_left_out(told, ottla, tmp_path):
    journal = told("broker_failure")
    (source,) = [f for files in journal.files for f in files if f.stat().st_size > 2000]
    later = []
    for number, line in enumerate(source.read_bytes().splitlines()):
        entry = json.loads(line)
        entry["ts"] += number * 1000
        later.append(json.dumps(entry))
    (tmp_path / JOURNAL_NAME).write_text("\n".join(later) + "\n")
    decided = next(i for i, text in enumerate(later) if '"offline"' in text and '"t-1"' in text)
    moment_ms = json.loads(later[decided])["ts"]
    leaders = {}
    for when in (moment_ms - 1, moment_ms):
        code, out, _ = ottla("history", "replay", tmp_path, "--until", when, "--output", "json")
        assert code == 0
        found = json.loads(out)
        assert problems(found, SCHEMAS["history replay"]) == []
        (topic,) = [t for t in found["topics"] if t["topic"] == "t"]
        (part,) = [p for p in topic["partitions"] if p["partition"] == 1]
        leaders[when] = part["leadership"]["leader"]
    assert list(leaders.values()) == [2, 3]
    code, out, _ = ottla("why", "t-1", tmp_path, "--at", moment_ms)
    assert "2 → 3" in out
    assert "3 → 1" not in out
    code, out, _ = ottla("history", "replay", tmp_path)
    assert "t-1" in out
    assert "OnlinePartition" in out


def test_replay_diff_is_empty_until_a_rule_changes(told, ottla, monkeypatch):
    folder = told("broker_failure").folder
    code, out, err = ottla("history", "replay", folder, "--diff")
    assert (code, out) == (0, "")
    assert "no difference" in err
    right = elections._offline

    def only_the_last(assignment, state, online, *, unclean):
        turned = elections.ReplicaAssignment(assignment.replicas[::-1])
        return right(turned, state, online, unclean=unclean)

    monkeypatch.setattr(elections, "_offline", only_the_last)
    code, out, err = ottla("history", "replay", folder, "--diff")
    assert code == 1
    assert "t-1  election: offline" in out
    assert "  - first live ISR member: leader 3" in out
    assert "  + first live ISR member: leader 1" in out
    code, out, _ = ottla("history", "replay", folder, "--diff", "--output", "json")
    assert code == 1
    found = json.loads(out)
    assert problems(found, SCHEMAS["history replay"]) == []
    assert found["differences"][0]["subject"] == "t-1"


def test_rules_that_fail_are_one_line_on_stderr(told, ottla, monkeypatch):
    """Also where a controller died before the first line after its snapshot."""
    journal = told("controller_failover")

    async def fails(*_arguments):
        raise KeyError("no such broker")

    monkeypatch.setattr(failover, "on_controller_failover", fails)
    for file in (f for files in journal.files for f in files):
        lines = file.read_bytes().splitlines(keepends=True)
        kept = [n for n, line in enumerate(lines) if b'"kind":"snapshot"' in line]
        file.write_bytes(b"".join(lines[: kept[-1] + 1]) if kept else b"")
    code, out, err = ottla("history", "replay", journal.folder, "--diff")
    assert code == 1
    assert "  + fails: KeyError: 'no such broker'" in out
    (said,) = [line for line in err.splitlines() if line.startswith("ottla: the installed rules")]
    assert re.search(r"fail \d times?, first at \S+:\d+: a line is damaged, or this version", said)
    assert said.endswith("keep the journal and report it")


def test_damaged_lines_are_named_on_stderr(told, ottla):
    journal = told("broker_failure")
    (file,) = [f for files in journal.files for f in files if f.stat().st_size > 2000]
    whole = file.read_bytes()
    file.write_bytes(whole + b"rubbish\n")
    code, out, err = ottla("why", "t-1", journal.folder)
    number = whole.count(b"\n") + 1
    assert code == 0
    assert "2 → 3" in out
    assert f"{file}:{number} is damaged and was skipped" in err


def test_moments():
    exact = parse_time("2026-11-21T12:01:07.250+00:00")
    assert exact == 1795262467250
    assert parse_time("1795262467250") == exact
    assert parse_time("2026-11-21T12:01:07+00:00") == exact + 749
    clock = time_text(exact)[11:]
    assert parse_time(clock, exact) == exact
    assert parse_time(clock[:8], exact) == exact + 749
    assert parse_time(clock[:5], exact) // 60_000 == exact // 60_000
    for text in ("noon", "2026-13-01T00:00:00", "99:99:99"):
        with pytest.raises(UnknownTimeError, match="is not a time"):
            parse_time(text, exact)
    assert time_text(-1) == "-"


def test_a_replay_logs_nothing(told, ottla, caplog):
    """The procedures are the controller's own, which log what they do."""
    journal = told("topic_deletion")
    caplog.clear()
    level = logging.getLogger("ottla.controller").level
    code, _, _ = ottla("history", "replay", journal.folder, "--diff")
    assert code == 0
    assert [r for r in caplog.records if r.name.startswith("ottla.controller")] == []
    assert logging.getLogger("ottla.controller").level == level
