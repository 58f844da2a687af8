"""`ottla dump-log` on damaged files: each is told with its place, and the rest is still read."""

import json
import struct

import pytest

from ottla.cli.grammar import main
from ottla.log.checkpoints import encode_epochs
from ottla.log.producers import CRC_COVERS_FROM, Producer, WrittenBatch, encode_snapshot
from ottla.wire.batch_header import crc32c
from ottla.wire.records import Record, build_batch
from support.old_messages import message_set
from support.schemas import SCHEMAS, problems

BASE = 100
NAME = f"{BASE:020}"


def snapshot(producers):
    data = encode_snapshot(producers)
    struct.pack_into(">I", data, 2, crc32c(bytes(data[CRC_COVERS_FROM:])))
    return bytes(data)


@pytest.fixture
def folder(tmp_path):
    """A partition of three batches of two records, with all of its files."""
    batches = [
        build_batch(
            [Record(timestamp=1000 * n, value=b"a" * 30), Record(timestamp=1000 * n + 1, key=b"k")],
            base_offset=BASE + 2 * n,
            leader_epoch=n,
        )
        for n in range(3)
    ]
    size = len(batches[0])
    assert {len(b) for b in batches} == {size}
    (tmp_path / f"{NAME}.log").write_bytes(b"".join(batches))
    entries = [(2 * n + 1, size * n) for n in (1, 2)]
    (tmp_path / f"{NAME}.index").write_bytes(b"".join(struct.pack(">ii", *e) for e in entries))
    times = [(2001, 5)]
    (tmp_path / f"{NAME}.timeindex").write_bytes(b"".join(struct.pack(">qi", *e) for e in times))
    (tmp_path / f"{NAME}.txnindex").write_bytes(struct.pack(">hqqqq", 0, 7, 100, 103, 104))
    producer = Producer(7)
    producer.epoch = 1
    producer.batches = [WrittenBatch(1, 103, 1, 55)]
    producer.last_timestamp = 55
    (tmp_path / f"{NAME}.snapshot").write_bytes(snapshot([producer, Producer(8)]))
    (tmp_path / "leader-epoch-checkpoint").write_bytes(encode_epochs([(0, 100), (2, 104)]))
    return tmp_path


SIZE = 61 + 48


def run(capsys, *arguments):
    code = main(["dump-log", *map(str, arguments)])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_whole_folder(folder, capsys):
    code, out, err = run(capsys, folder, "--records")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert (
        "| offset: 103 CreateTime: 1001 keySize: 1 valueSize: -1 sequence: -1 headerKeys: []"
        in lines
    )
    assert "offset: 105 position: 214" in lines or any(
        x.startswith("offset: 105 position") for x in lines
    )
    assert "timestamp: 2001 offset: 105" in lines
    assert (
        "version: 0 producerId: 7 firstOffset: 100 lastOffset: 103 lastStableOffset: 104" in lines
    )
    assert (
        "producerId: 7 producerEpoch: 1 coordinatorEpoch: -1 currentTxnFirstOffset: "
        "OptionalLong.empty lastTimestamp: 55 firstSequence: 0 lastSequence: 1 lastOffset: 103 "
        "offsetDelta: 1 timestamp: 55"
    ) in lines
    assert "epoch: 2 startOffset: 104" in lines
    assert run(capsys, folder, "--check")[0] == 0


def test_json_is_one_list(folder, capsys):
    found = json.loads(run(capsys, folder, "--output", "json", "--contents")[1])
    kinds = [f["kind"] for f in found]
    assert kinds.count("batch") == 3
    assert kinds.count("record") == 6
    assert problems(found, SCHEMAS["dump-log"]) == []
    record = next(f for f in found if f["kind"] == "record")
    assert (record["key"], record["value"]) == (None, "a" * 30)
    assert "shown" not in record


def changed(folder, name, at, data):
    path = folder / name
    old = path.read_bytes()
    path.write_bytes(old[:at] + data + old[at + len(data) :])


LOG, INDEX, TIMES = f"{NAME}.log", f"{NAME}.index", f"{NAME}.timeindex"
DAMAGE = [
    ("a flipped byte", LOG, lambda s: (s + 70, b"\xff"), "{s}: the batch does not match"),
    ("a cut tail", LOG, lambda s: (3 * s - 5, None), "{2s}: {rest} bytes at the end"),
    ("zeros at the end", LOG, lambda s: (3 * s, bytes(40)), "{3s}: a batch claims a length of 0"),
    ("an old format", LOG, lambda s: (s + 16, b"\x01"), "{s}: a batch of message format 1"),
    ("an unknown format", LOG, lambda s: (s + 16, b"\x07"), "{s}: "),
    (
        "an offset again",
        LOG,
        lambda s: (s, struct.pack(">q", 100)),
        "{s}: a batch begins with offset 100",
    ),
    ("an index cut", INDEX, lambda s: (12, None), "8: 12 bytes are no whole number"),
    (
        "an index beyond",
        INDEX,
        lambda s: (4, struct.pack(">i", 10**6)),
        "0: offset 103: no batch at 1000000",
    ),
    (
        "an index astray",
        INDEX,
        lambda s: (8, struct.pack(">i", 4)),
        "8: offset 104: the batch at {2s}",
    ),
    (
        "a time astray",
        TIMES,
        lambda s: (0, struct.pack(">q", 7)),
        "0: offset 105: the largest timestamp",
    ),
    (
        "a time of no batch",
        TIMES,
        lambda s: (8, struct.pack(">i", 4)),
        "0: offset 104 is not the last",
    ),
    ("a time beyond", TIMES, lambda s: (8, struct.pack(">i", 44)), "0: offset 144 is in no batch"),
    (
        "times that go back",
        TIMES,
        lambda s: (12, struct.pack(">qi", 2001, 5)),
        "12: timestamp 2001 is not",
    ),
    ("a snapshot", f"{NAME}.snapshot", lambda s: (20, b"\xff"), "CRC does not match"),
    ("transactions cut", f"{NAME}.txnindex", lambda s: (30, None), "0: 30 bytes are no whole"),
    (
        "transactions' version",
        f"{NAME}.txnindex",
        lambda s: (0, b"\0\1"),
        "0: an entry of version 1",
    ),
    ("epochs", "leader-epoch-checkpoint", lambda s: (0, b"9"), "checkpoint version 9"),
]


@pytest.mark.parametrize(
    ("name", "change", "says"), [d[1:] for d in DAMAGE], ids=[d[0] for d in DAMAGE]
)
def test_damage_is_told_with_its_place(folder, capsys, name, change, says):
    size = (folder / LOG).stat().st_size // 3
    at, data = change(size)
    path = folder / name
    if data is None:
        path.write_bytes(path.read_bytes()[:at])
    else:
        changed(folder, name, at, data)
    code, out, err = run(capsys, folder, "--records")
    assert code == 1
    says = (
        says.replace("{s}", str(size)).replace("{2s}", str(2 * size)).replace("{3s}", str(3 * size))
    )
    says = says.replace("{rest}", str(size - 5))
    assert any(line.startswith(str(path)) and says in line for line in err.splitlines()), err
    assert "Traceback" not in err
    assert f"Dumping {folder / 'leader-epoch-checkpoint'}" in out
    assert out.count("Dumping ") == 6


def test_a_missing_segment_and_unknown_names(folder, capsys):
    (folder / LOG).unlink()
    code, _, err = run(capsys, folder / INDEX)
    assert code == 1
    assert f"{LOG} is not beside it" in err
    (folder / "notes.txt").write_text("x")
    code, _, err = run(capsys, folder / "notes.txt")
    assert code == 1
    assert "not a segment" in err
    assert err.count("\n") == 1
    assert run(capsys, folder / "nosuch")[0] == 1


@pytest.mark.parametrize("packed", ["plain", "gzip"])
@pytest.mark.parametrize("magic", [0, 1])
def test_records_of_formats_0_and_1_are_printed(tmp_path, capsys, magic, packed):
    path = tmp_path / LOG
    path.write_bytes(message_set(100, 20, magic=magic, packed=packed))
    code, out, err = run(capsys, path, "--records", "--contents")
    assert (code, err) == (0, "")
    for offset in range(100, 120):
        assert f"| offset: {offset} " in out
        assert f"payload: v{offset}\n" in out
    assert f"magic: {magic} compresscodec: {'none' if packed == 'plain' else packed}" in out
