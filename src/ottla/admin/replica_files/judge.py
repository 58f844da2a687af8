"""A partition's replicas judged: all checks of each, and all of them against each other.

Pure: cells are read again by a function.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from ottla.admin.replica_files import finding as kinds
from ottla.admin.replica_files.checks import found_in
from ottla.admin.replica_files.compare import ReadCell, divergences, spans_of
from ottla.admin.replica_files.finding import Finding
from ottla.admin.replica_files.replica import Replica, Truth


def judge(
    replicas: Sequence[Replica], read_cell: ReadCell, truth: Truth | None = None
) -> list[Finding]:
    """Return what is to be reported of one partition, by offset."""
    committed = committed_upto(replicas, truth)
    cleaned = max((r.holes_upto for r in replicas), default=0)
    found: list[Finding] = []
    for replica in replicas:
        found += found_in(replica, committed=committed, cleaned=cleaned, truth=truth)
    found += _foreign_folders(replicas, truth)
    spans = spans_of(replicas, committed, cleaned)
    found += divergences(replicas, spans, read_cell, truth)
    found += _not_compared(replicas, cleaned)
    return sorted(found, key=lambda f: (not f.wrong, f.offset, f.broker, f.kind))


def committed_upto(replicas: Sequence[Replica], truth: Truth | None) -> int | None:
    """Return the high watermark: the cluster's, else the highest that a checkpoint has."""
    if truth is not None and truth.high_watermark is not None:
        return truth.high_watermark
    known = [r.high_watermark for r in replicas if r.high_watermark is not None]
    return max(known) if known else None


def missing_replicas(
    replicas: Sequence[Replica], truth: Truth | None, looked_at: frozenset[int]
) -> Iterator[Finding]:
    """Yield the replicas that the cluster assigns to brokers whose folders have no log of them."""
    if truth is None or not replicas:
        return
    here = {r.broker for r in replicas}
    tp = replicas[0].tp
    for broker in sorted(truth.replicas & looked_at - here):
        in_sync = broker in truth.isr
        detail = "its folders have no log of it" + ("" if in_sync else "; it is not in the ISR")
        yield Finding(
            tp.topic, tp.partition, kinds.MISSING_REPLICA, -1, broker, "", -1, detail, in_sync
        )


def _foreign_folders(replicas: Sequence[Replica], truth: Truth | None) -> Iterator[Finding]:
    """Yield replicas of another topic that had the same name."""
    ids = Counter(r.topic_id for r in replicas if r.topic_id is not None)
    right = truth.topic_id if truth is not None and truth.topic_id else None
    if right is None and ids:
        right = ids.most_common(1)[0][0]
    for replica in replicas:
        if replica.topic_id is not None and replica.topic_id != right:
            tp = replica.tp
            yield Finding(
                tp.topic, tp.partition, kinds.FOREIGN_FOLDER, -1, replica.known_broker,
                f"{replica.folder}/partition.metadata", -1,
                f"topic id {replica.topic_id}, where {right} is expected",
            )  # fmt: skip


def _not_compared(replicas: Sequence[Replica], cleaned: int) -> Iterator[Finding]:
    """Say which offsets the cleaner was in: each broker's cleaner rewrites them by itself."""
    start = min((r.start for r in replicas), default=0)
    if cleaned > start:
        tp = replicas[0].tp
        yield Finding(
            tp.topic, tp.partition, kinds.CLEANED, start, -1, "", -1,
            f"offsets below {cleaned} were compacted: gaps there are no loss, and replicas were "
            "not compared; checksums were checked", wrong=False,
        )  # fmt: skip
