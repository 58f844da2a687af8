"""What a cluster costs a test: to a usable bootstrap, to the first record, its end, its memory.

    python benchmarks/cluster_fixture.py [--rounds 20]

Each round starts a cluster, lets confluent-kafka write one record with acks=all, and ends it. The
first round, in which modules are imported, is left out of the medians and printed by itself.
Memory of a cluster in processes is the sum of the proportional shares (Pss) of fork server,
coordination service and brokers, idle, after the record.
"""

import argparse
import statistics
import time
from pathlib import Path

from confluent_kafka import Producer

from ottla import SyncCluster


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    print("brokers  in       bootstrap usable     first record acknowledged  end    memory")
    for in_process in (True, False):
        for brokers in (1, 3):
            one(brokers, in_process, rounds)


def one(brokers, in_process, rounds):
    usable, record, ended, memory = [], [], [], []
    for _ in range(rounds + 1):
        began = time.monotonic()
        cluster = SyncCluster(brokers, in_process=in_process)
        cluster.open()
        usable.append(time.monotonic() - began)
        write_one(cluster)
        record.append(time.monotonic() - began)
        if not in_process:
            memory.append(pss_mb(cluster))
        began = time.monotonic()
        cluster.close()
        ended.append(time.monotonic() - began)
    where = "threads" if in_process else "processes"
    used = f"{statistics.median(memory):.0f} MB" if memory else "-"
    print(
        f"{brokers:7}  {where:9}  "
        f"{ms(usable[1:])} (first {usable[0] * 1000:.0f})  {ms(record[1:])}"
        f"  {statistics.median(ended) * 1000:.0f} ms  {used}"
    )


def write_one(cluster):
    cluster.create_topic("orders")
    errors = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0})
    producer.produce("orders", b"one", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(20) == 0
    assert errors == [None]


def ms(values):
    values = sorted(v * 1000 for v in values)
    return f"{statistics.median(values):.0f} ms [{values[0]:.0f} .. {values[-1]:.0f}]"


def pss_mb(cluster):
    """Return the proportional memory of all processes of a cluster in MB, 10^6 bytes."""
    stat = Path(f"/proc/{cluster.pid(1)}/stat").read_text()
    server = stat.rpartition(")")[2].split()[1]  # their parent
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    pids = [server, *children]
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total / 1e6


if __name__ == "__main__":
    main()
