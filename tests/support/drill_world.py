"""A small cluster's files after a failover, as tests of the drill report plant faults in them.

Two partitions of `orders`, three replicas, 100 offsets each, in batches of five. Partition 0:
broker 1 led in epoch 0 (offsets 0 to 39) and died, broker 2 in epoch 1 (40 to 79), broker 1 again
in epoch 3 (80 to 99). Partition 1: broker 2 all the time. The controller was broker 9, whose
journal is there. All of it was acknowledged and has landed.
"""

import json
import shutil
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.log import checkpoints
from ottla.pipelines.landing.manifest import (
    NAME,
    Binding,
    File,
    Landed,
    Manifest,
    Span,
    Totals,
    encode,
)
from support import planted

TOPIC, OFFSETS, PER_BATCH = "orders", 100, 5
START_MS = 1_790_000_000_000
BEGAN = {(0, 0): START_MS, (0, 1): START_MS + 20_000, (0, 3): START_MS + 40_000,
         (1, 0): START_MS}  # fmt: skip
"""When a term began: by partition and leader epoch."""
LEADS = {(0, 0): 1, (0, 1): 2, (0, 3): 1, (1, 0): 2}
FIRST = {(0, 0): 0, (0, 1): 40, (0, 3): 80, (1, 0): 0}
"""The first offset of each epoch."""
TOPIC_ID = str(uuid.UUID(bytes=b"0123456789abcdef"))


class World:
    """The folder, and what tests change in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.acks = [
            (p, o, BEGAN[p, epoch_of(p, o)] + 100 + o) for p in (0, 1) for o in range(OFFSETS)
        ]
        self.rows = [(p, o) for p in (0, 1) for o in range(OFFSETS)]
        for broker in range(3):
            self._write_logs(broker)
        (folder / "broker-9").mkdir()
        journal = folder / "broker-9" / "ottla-controller-journal.jsonl"
        journal.write_text(
            "".join(json.dumps(x, separators=(",", ":")) + "\n" for x in journaled())
        )
        self.write_acks()
        self.write_lake()

    def log_dir(self, broker: int) -> Path:
        return self.folder / f"broker-{broker}"

    def segments(self, broker: int, partition: int) -> list[Path]:
        return planted.segments(self.log_dir(broker) / f"{TOPIC}-{partition}")

    def state_changes(self, broker: int) -> Path:
        return self.log_dir(broker) / "state-change.log"

    def _write_logs(self, broker: int) -> None:
        folder = self.log_dir(broker)
        planted.log(folder / f"{TOPIC}-0", [(0, 8), (1, 8), (3, 4)])
        planted.log(folder / f"{TOPIC}-1", [(0, 20)])
        planted.marks(
            folder, checkpoints.HIGH_WATERMARKS, {f"{TOPIC}-0": OFFSETS, f"{TOPIC}-1": OFFSETS}
        )
        (folder / checkpoints.META_PROPERTIES).write_text(
            f"version=0\nbroker.id={broker}\ncluster.id=drill\n"
        )
        lines = []
        previous = {0: -1, 1: -1}
        for (p, epoch), began in sorted(BEGAN.items(), key=lambda item: item[1]):
            if broker == 1 and (p, epoch) == (0, 1):
                previous[p] = -1  # it was dead, and knows nothing of before when it starts
                continue
            lines.append(role(broker, p, epoch, began + 10, previous[p]))
            previous[p] = epoch
        self.state_changes(broker).write_text("".join(lines))

    def write_acks(self, names: str = "partition,offset,ms", tail: str = "") -> Path:
        path = self.folder / "acks.csv"
        lines = [",".join(map(str, ack)) for ack in self.acks]
        path.write_text("\n".join([names, *lines]) + "\n" + tail)
        return path

    def write_lake(self, topic_id: str = TOPIC_ID) -> Path:
        lake = self.folder / "lake"
        shutil.rmtree(lake, ignore_errors=True)
        batch = lake / TOPIC / "data" / "batch=0"
        batch.mkdir(parents=True)
        table = pa.table(
            {
                "kafka_topic": [TOPIC] * len(self.rows),
                "kafka_partition": pa.array([p for p, _ in self.rows], pa.int32()),
                "kafka_offset": pa.array([o for _, o in self.rows], pa.int64()),
            }
        )
        pq.write_table(table, batch / "part-0.parquet")
        binding = Binding(
            format=1, lake_id="l", path=str(lake / TOPIC), cluster_id="drill", topic=TOPIC,
            topic_id=topic_id, isolation="read_uncommitted", created_ms=START_MS,
            starts={0: 0, 1: 0},
        )  # fmt: skip
        (lake / TOPIC / "table.json").write_bytes(encode(binding))
        whole = Landed(start=0, end=OFFSETS, rows=OFFSETS)
        manifest = Manifest(
            binding=binding, batch=0, first=0, previous="", committed_ms=START_MS, schema=0,
            partitions={0: [whole], 1: [whole]}, files=[File("part-0.parquet", 1)], dead_files=[],
            landed={p: [Span(0, OFFSETS)] for p in (0, 1)}, epochs={0: 3, 1: 0},
            totals={p: Totals(rows=OFFSETS) for p in (0, 1)},
        )  # fmt: skip
        (batch / NAME).write_bytes(encode(manifest))
        return lake


def epoch_of(partition: int, offset: int) -> int:
    return max(e for (p, e), first in FIRST.items() if p == partition and first <= offset)


def role(broker: int, partition: int, epoch: int, ms: int, previous: int) -> str:
    """Return the line of a broker that leads or follows from then on."""
    leader = LEADS[partition, epoch]
    offset = FIRST[partition, epoch]
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    head = f"[{moment:%Y-%m-%d %H:%M:%S},{ms % 1000:03d}] INFO [Broker id={broker}] "
    name = f"{TOPIC}-{partition}"
    if broker == leader:
        text = (
            f"Leader {name} with topic id Some(hD15WMViXciYbFu4oOXmPQ) starts at leader epoch "
            f"{epoch} from offset {offset} with partition epoch {epoch}, high watermark {offset}, "
            "ISR [0,1,2], adding replicas [] and removing replicas [] . Previous leader None and "
        )
    else:
        text = (
            f"Follower {name} starts at leader epoch {epoch} from offset {offset} with partition "
            f"epoch {epoch} and high watermark {offset}. Current leader is {leader}. Previous "
            "leader None and "
        )
    return f"{head}{text}previous leader epoch was {previous}. (state.change.logger)\n"


def journaled() -> list[dict]:
    """Return the controller's journal: the topic's creation, a death, a preferred election."""

    def event(ms, cause, name, **inputs):
        return {"kind": "event", "ts": ms, "controller": 9, "epoch": 5, "cause": cause,
                "event": name, "inputs": inputs}  # fmt: skip

    def decision(ms, cause, partition, election, rule, before, after):
        def state(found):
            return found and {"leader": found[0], "leader_epoch": found[1], "isr": [0, 1, 2]}

        return {
            "kind": "decision", "ts": ms, "controller": 9, "epoch": 5, "cause": cause,
            "partition": f"{TOPIC}-{partition}", "election": election, "rule": rule,
            "before": state(before), "after": state(after), "replicas": [0, 1, 2],
            "rejected": [], "outcome": "written",
        }  # fmt: skip

    died, back = BEGAN[0, 1], BEGAN[0, 3]
    return [
        event(START_MS, 1, "TopicsChanged", new={TOPIC: {}}, gone=[]),
        decision(START_MS, 1, 0, "new", "first live replica", None, (1, 0)),
        decision(START_MS, 1, 1, "new", "first live replica", None, (2, 0)),
        event(
            died, 2, "BrokersChanged", present=[], dead=[1], new=[], bounced=[], shutting_down=[]
        ),
        decision(died, 2, 0, "offline", "first live ISR member", (1, 0), (2, 1)),
        event(back, 3, "LeaderBalanceDue", broker=1, elsewhere=1, of=1, limit=0.1, due=True),
        decision(back, 3, 0, "preferred", "preferred replica", (2, 1), (1, 3)),
    ]
