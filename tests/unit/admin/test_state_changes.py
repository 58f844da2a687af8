"""`ottla history merge`: several brokers' logs in order of time, in constant memory."""

import gzip
import heapq
import random
import re
import subprocess
import sys

import pytest

from ottla.admin.log_files import state_changes
from ottla.cli import grammar as cli
from ottla.model.errors import OttlaError

ALL = state_changes.about(None, None)


def line(ms, what, second=1):
    return f"[2026-11-23 12:30:{second:02},{ms:03}] INFO {what} (state.change.logger)\n".encode()


def written(folder, **files):
    paths = []
    for name, lines in files.items():
        paths.append(folder / f"{name}.log")
        paths[-1].write_bytes(b"".join(lines))
    return paths


def merged(paths, start=None, end=None, names=ALL):
    """All lines of all portions, with their ends."""
    return [
        found + b"\n" for part in state_changes.merged(paths, start, end, names) for found in part
    ]


def test_lines_come_in_order_of_time_and_of_the_files(tmp_path):
    one = [line(1, "[t,0] a"), line(5, "[t,0] b"), line(5, "t-1 c")]
    two = [line(2, "t-0 d"), line(5, "t-0 e"), line(900, "t-0 f")]
    paths = written(tmp_path, one=one, two=two)
    found = merged(paths)
    assert found == [one[0], two[0], one[1], one[2], two[1], two[2]]


def test_random_files_are_merged_as_a_sort_does(tmp_path):
    chance = random.Random(5)
    files = {
        f"f{n}": [
            line(ms, f"t-{chance.randrange(3)} {n} {i}")
            for i, ms in enumerate(sorted(chance.randrange(1000) for _ in range(200)))
        ]
        for n in range(5)
    }
    paths = written(tmp_path, **files)
    every = [text for lines in files.values() for text in lines]
    assert merged(paths) == sorted(every, key=lambda t: t[:25])


@pytest.mark.parametrize("seed", range(20))
def test_clocks_that_go_back_and_equal_times_are_merged_as_a_heap_of_lines_does(
    tmp_path, monkeypatch, seed
):
    """The truth is the standard library's merge of one line of each file at a time."""
    chance = random.Random(seed)
    monkeypatch.setattr(state_changes, "BLOCK", chance.choice((1, 50, 400, 5000)))
    files = {}
    for n in range(chance.randrange(1, 5)):
        at, found = 0, []
        for i in range(chance.randrange(60)):
            at = max(0, at + chance.choice((0, 0, 1, 2, 7, -3)))
            found.append(line(at, f"t-0 {n} {i}"))
        files[f"f{n}"] = found
    paths = written(tmp_path, **files)
    assert merged(paths) == list(heapq.merge(*files.values(), key=lambda text: text[:25]))


def test_a_time_that_lasts_for_many_blocks_is_not_gathered(tmp_path, monkeypatch):
    monkeypatch.setattr(state_changes, "BLOCK", 500)
    one = [line(5, f"t-0 {n}") for n in range(300)]
    two = [line(5, f"t-1 {n}") for n in range(300)]
    paths = written(tmp_path, one=one, two=two)
    portions = list(state_changes.merged(paths, None, None, ALL))
    assert max(map(len, portions)) < 20
    assert merged(paths) == [*one, *two]


@pytest.mark.parametrize(
    ("text", "topic", "partitions", "named"),
    [
        ("partition [t,0] from", None, None, True),
        ("partition [t, 0] from", "t", {0}, True),
        ("partition t-0 from", "t", {0}, True),
        ("partition t-0 from", "t", {1}, False),
        ("partition t-0 from", "u", None, False),
        ("partition my.topic_x-12 from", "my.topic_x", {12}, True),
        ("partition a-1-2 from", "a-1", {2}, True),
        ("partition a-1-2 from", "a", {1}, False),
        ("partitions Set(t-0, t-7) from", "t", {7}, True),
        ("Add 3 partitions and deleted 0", None, None, False),
        ("become-leader of t-00x", None, None, False),
        ("of t-0.", "t", {0}, True),
        ("of t-0.5", "t", {0}, False),
    ],
)
def test_which_partition_a_line_names(text, topic, partitions, named):
    assert state_changes.about(topic, partitions)(line(1, text)) is named


def test_times_before_and_after_are_left_out(tmp_path):
    lines = [line(n, f"t-0 {n}", second) for second in (1, 2, 3) for n in (0, 500, 999)]
    paths = written(tmp_path, one=lines)

    def between(start, end):
        first = start and state_changes.parse_time(start)
        last = end and state_changes.parse_time(end, last=True)
        return merged(paths, first, last)

    assert between("2026-11-23 12:30:02,500", None) == lines[4:]
    assert between(None, "2026-11-23 12:30:02,500") == lines[:5]
    assert between("2026-11-23 12:30:02", "2026-11-23 12:30:02") == lines[3:6]
    assert between("2026-11-23T12:30", "2026-11-23") == lines
    assert between("2026-11-24", None) == []
    for bad in ("soon", "2026-13-01", "2026-11-23T12:30:00+02:00", ""):
        with pytest.raises(OttlaError, match="is no time of a log"):
            state_changes.parse_time(bad)


def test_what_is_no_line_is_left_out_and_gzip_is_read(tmp_path):
    good = line(1, "t-0 a")
    trace = b"java.lang.RuntimeException: t-0\n\tat a.b(C.java:1)\n"
    long = line(2, "t-0 " + "x" * state_changes.LONGEST_LINE)
    (tmp_path / "a.log").write_bytes(good + trace + long + line(3, "t-0 b").rstrip(b"\n"))
    with gzip.open(tmp_path / "b.log.gz", "wb") as file:
        file.write(line(2, "t-0 c"))
    found = merged([tmp_path / "a.log", tmp_path / "b.log.gz"])
    assert found[0] == good
    assert len(found[1]) == state_changes.LONGEST_LINE + 1
    assert found[2:] == [line(2, "t-0 c"), line(3, "t-0 b")]


def run(capsys, *words):
    code = cli.main(["history", "merge", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


def test_as_typed(tmp_path, capsys):
    one, two = written(tmp_path, one=[line(2, "t-0 a")], two=[line(1, "u-1 b")])
    assert run(capsys, "--logs", f"{one},{two}")[:2] == (
        0,
        (line(1, "u-1 b") + line(2, "t-0 a")).decode(),
    )
    found = run(
        capsys, "--logs-regex", f"{tmp_path}/.*\\.log", "--topic", "t", "--partitions", "0,3"
    )
    assert found[:2] == (0, line(2, "t-0 a").decode())
    for words, code, said in (
        (["--logs", one, "--dir", tmp_path], 2, "--dir finds the files itself"),
        (["--logs", one, "--partitions", "0"], 2, "--partitions goes with --topic"),
        (["--logs", one, "--topic", "t", "--partitions", "x"], 2, "write numbers between commas"),
        (["--logs", tmp_path / "none"], 1, "none: No such file"),
        (["--logs-regex", f"{tmp_path}/x.*"], 1, "no file in"),
        (["--logs-regex", f"{tmp_path}/("], 1, "no regular expression"),
        (["--logs", one, "--start-time", "soon"], 1, "is no time of a log"),
    ):
        got, out, err = run(capsys, *words)
        assert (got, out) == (code, "")
        assert said in re.sub(r"\s+", " ", err), err


def test_the_logs_of_a_cluster_are_found_below_its_folder(tmp_path, capsys, monkeypatch):
    ours = [tmp_path / "data" / f"broker-{n}" / "state-change.log" for n in range(2)]
    for n, path in enumerate(ours):
        (path.parent / "data" / "t-0").mkdir(parents=True)
        path.write_bytes(line(n, f"t-0 {n}"))
        (path.parent / "data" / "t-0" / f"{0:020}.log").write_bytes(line(9, "t-0 is a record"))
        (path.parent / "server.log").write_bytes(line(9, "t-0 is of another log"))
    old = ours[0].with_name("state-change.log.20261123113000123")
    old.write_bytes(line(0, "t-0 old", second=0))
    old.with_name(old.name + ".gz").write_bytes(gzip.compress(old.read_bytes()))
    both = (line(0, "t-0 old", second=0) + line(0, "t-0 0") + line(1, "t-0 1")).decode()
    assert run(capsys, "--dir", tmp_path / "data")[:2] == (0, both)
    monkeypatch.setenv("OTTLA_DIR", str(tmp_path / "data"))
    assert run(capsys, "--topic", "t")[:2] == (0, both)
    found = run(capsys, "--logs-regex", f"{tmp_path}/data/.*")
    assert found[0] == 0
    assert "another log" in found[1]
    assert "record" not in found[1]
    found = run(capsys, "--logs-regex", f"{tmp_path}/state-change.log")
    assert found[:2] == (0, (line(0, "t-0 0") + line(1, "t-0 1")).decode())


def test_nothing_that_matches_is_said(tmp_path, capsys, monkeypatch):
    (path,) = written(tmp_path, one=[line(2, "t-0 a"), b"no line of a log\n"])
    for words, said in (
        (["--logs", path, "--topic", "u"], "is about topic u; are these state change logs"),
        (["--logs", path, "--topic", "t", "--partitions", "1,2"], "about topic t, partition 1,2;"),
        (["--logs", path, "--start-time", "2027-01-01"], "about a partition, from 2027-01-01;"),
        (["--logs-regex", f"{tmp_path}/.*", "--end-time", "2020-01-01"], "1 file (such as"),
        (["--dir", tmp_path], f"no state-change.log in {tmp_path} or below it"),
        (["--dir", tmp_path / "none"], "none: No such file or directory; is the name right?"),
    ):
        code, out, err = run(capsys, *words)
        assert (code, out, err.count("\n")) == (1, "", 1), words
        assert said in err
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OTTLA_DIR", raising=False)
    assert run(capsys)[0] == 1


def test_memory_does_not_grow_with_the_files(tmp_path):
    """64 MB of lines in three files, merged by a process whose address space is bounded."""
    block = b"".join(line(n % 1000, f"partition t-{n % 50} state") for n in range(10_000))
    for name in "abc":
        with (tmp_path / f"{name}.log").open("wb") as file:
            for _ in range(30):
                file.write(block)
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from ottla.admin.log_files import state_changes as s\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"paths = sorted(Path({str(tmp_path)!r}).glob('*.log'))\n"
        "count = sum(len(p) for p in s.merged(paths, None, None, s.about('t', None)))\n"
        "print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    count, grown_kib = map(int, done.stdout.split())
    assert count == 900_000
    assert grown_kib < 8192
