"""What the console's pages take on a large cluster, and what looking on costs producers.

    PYTHONPATH=src:tests python benchmarks/console.py [--part pages|cost] [--pairs 8]

pages: three brokers with 1,000 topics of 10 partitions, and the console, as processes. Each page is
loaded twenty times, one after the other, as by a browser that was let in: median and slowest of the
time until its last byte, its size, and the console's resident memory before and after. Goals:
200 ms on the server, first paint within 1 s (Chromium without a window, where it is installed).
cost: Kafka's ProducerPerformance (acks=all, three replicas, as fast as it goes) on a small cluster,
with and without a console whose overview, topic and group pages are live and of which one more page
is loaded every two seconds, and with all brokers scraped each 5 s; in turn, in either order.
Reported: records per second of each run, the median of the pairs' ratios, and what of a core the
console took. Goal: 3 % at most. Single runs differ by more than that, so the same pairs are run at
PACED records per second too, and what brokers, ZooKeeper and console take of all cores is compared:
producers that use all that is left lose that much.
"""

import argparse
import contextlib
import http.client
import itertools
import os
import re
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from perf_tools import producer_performance
from scrape import cpu_s, scrape

from ottla.local.cluster_dir import ClusterDir
from support.browser import chromium, why_not
from support.console_process import Served, served, up

PAGES = (
    "/", "/topics", "/topics?page=5", "/topic?name=topic-500", "/broker?id=1", "/doctor",
    "/messages?topic=topic-500&from=beginning", "/groups", "/group?name=readers", "/reassign",
    "/settings?kind=topic&name=topic-500", "/transactions", "/users", "/whatif",
    "/whatif?broker=1", "/why", "/why?partition=topic-500-3", "/chaos",
)  # fmt: skip
LIVE = ("/live?of=overview", "/live?of=topic&name=cost", "/live?of=group&name=readers")
TIMES = 20
SCRAPE_S = 5.0
PAGE_S = 2.0
RECORDS = 3_000_000
PACED, PACED_S = 50_000, 2 * len(PAGES)  # each page once


def create(bootstrap: str, topics: int, partitions: int, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = [f"topic-{n}" for n in range(topics)]
    for start in range(0, topics, 100):
        made = [NewTopic(name, partitions, replicas) for name in names[start : start + 100]]
        for future in admin.create_topics(made, operation_timeout=60).values():
            future.result(90)


def a_group(bootstrap: str, topic: str) -> None:
    """Make a group that has committed an offset."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    if consumer.poll(60) is None:
        raise RuntimeError("the group read no record in 60 s")
    consumer.commit(asynchronous=False)
    consumer.close()


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024 / 1e6  # type: ignore[index]


def pages(topics: int, partitions: int) -> None:
    with tempfile.TemporaryDirectory() as folder, up(Path(folder) / "c") as cluster:
        create(cluster.bootstrap(), topics, partitions, 3)
        producer_performance(cluster.bootstrap(), "topic-500", 20_000, "all")
        a_group(cluster.bootstrap(), "topic-500")
        with served("--dir", cluster.path) as console:
            console.enter()
            before = resident_mb(console.process.pid)
            for page in PAGES:
                took = []
                for _ in range(TIMES):
                    began = time.perf_counter()
                    text = console.get(page)
                    took.append((time.perf_counter() - began) * 1000)
                print(
                    f"{page:45} median {statistics.median(took):6.0f} ms, slowest "
                    f"{max(took):6.0f} ms, {len(text) / 1e3:7.1f} kB",
                    flush=True,
                )
            after = resident_mb(console.process.pid)
            print(f"console's resident memory: {before:.0f} MB before, {after:.0f} MB after")
        with served("--dir", cluster.path) as console:
            paints(console)


def paints(console: Served) -> None:
    if reason := why_not():
        print(f"first paint: not measured: {reason}")
        return
    with chromium() as driver:
        driver.get(console.link)
        time.sleep(2)
        for page in PAGES:
            found = []
            for _ in range(3):
                driver.get(f"http://{console.address}{page}")
                time.sleep(0.5)
                found += driver.execute_script(
                    "return performance.getEntriesByName('first-contentful-paint')"
                    ".map(entry => entry.startTime)"
                )
            print(f"{page:45} first paint after {max(found, default=float('nan')):6.0f} ms")


def live(console: Served, path: str) -> http.client.HTTPConnection:
    client = http.client.HTTPConnection(console.address, timeout=60)
    client.request("GET", path, headers={"Cookie": console.cookie})
    return client


def follow(response: http.client.HTTPResponse) -> None:
    """Read a live stream until its connection is shut down."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        while response.readline():
            pass


def repeat(what: Callable[[], object], every_s: float, done: threading.Event) -> None:
    while not done.wait(every_s):
        what()


@contextlib.contextmanager
def looking_on(cluster: ClusterDir, shares: list[float]) -> Iterator[None]:
    """Look at a cluster by a console and by scrapes; add what of a core the console took."""
    ports = [broker.metrics_port for broker in cluster.existing().brokers]
    with served("--dir", cluster.path) as console:
        console.enter()
        done, turn = threading.Event(), itertools.cycle(PAGES)

        def load() -> None:
            console.get(next(turn).replace("topic-500", "cost"))

        streams = [(c := live(console, path), c.getresponse()) for path in LIVE]
        assert all(response.status == 200 for _, response in streams)
        works = [threading.Thread(target=follow, args=(response,)) for _, response in streams]
        works.append(threading.Thread(target=repeat, args=(load, PAGE_S, done)))
        works += [
            threading.Thread(target=repeat, args=(partial(scrape, p), SCRAPE_S, done))
            for p in ports
        ]
        for work in works:
            work.start()
        time.sleep(2)
        pid = console.process.pid
        began, used = time.monotonic(), cpu_s(pid)
        try:
            yield
        finally:
            shares.append((cpu_s(pid) - used) / (time.monotonic() - began))
            done.set()
            for client, _ in streams:
                client.sock.shutdown(socket.SHUT_RDWR)
            for work in works:
                work.join(15)


def cost(pairs: int) -> None:
    with tempfile.TemporaryDirectory() as folder, up(Path(folder) / "c") as cluster:
        bootstrap = cluster.bootstrap()
        admin = AdminClient({"bootstrap.servers": bootstrap})
        short = {"retention.bytes": "200000000", "segment.bytes": "50000000"}
        admin.create_topics([NewTopic("cost", 6, 3, config=short)])["cost"].result(30)
        producer_performance(bootstrap, "cost", RECORDS, "all")
        a_group(bootstrap, "cost")
        pids = [process.pid for process in cluster.existing().processes()]
        shares: list[float] = []

        def run(looked_at: bool, records: int, per_s: int) -> tuple[float, float]:
            """Return records per second, and what cluster and console took of all cores."""
            with looking_on(cluster, shares) if looked_at else contextlib.nullcontext():
                began, used = time.monotonic(), sum(map(cpu_s, pids))
                rate = producer_performance(bootstrap, "cost", records, "all", per_s=per_s)
                share = (sum(map(cpu_s, pids)) - used) / (time.monotonic() - began)
            share = (share + (shares[-1] if looked_at else 0.0)) / (os.cpu_count() or 1)
            print(
                f"{'looked at' if looked_at else 'alone':10} {rate:10,.0f} records/s, "
                f"{share * 100:.2f} % of all cores",
                flush=True,
            )
            return rate, share

        rates = in_turn(lambda looked_at: run(looked_at, RECORDS, -1)[0], pairs)
        console = statistics.median(shares)
        shares.clear()
        takes = in_turn(lambda looked_at: run(looked_at, PACED * PACED_S, PACED)[1], pairs)
    print(
        f"as fast as it goes, {spread([w / a - 1 for a, w in rates])}; "
        f"the console took {console * 100:.1f} % of a core\n"
        f"at {PACED:,} records/s, of all cores: {spread([w - a for a, w in takes])}; "
        f"the console took {statistics.median(shares) * 100:.1f} % of a core"
    )


def in_turn(measure: Callable[[bool], float], pairs: int) -> list[tuple[float, float]]:
    """Measure alone and looked at, in either order; return the pairs."""
    found = []
    for number in range(pairs):
        pair = {looked_at: measure(looked_at) for looked_at in (number % 2 == 0, number % 2 == 1)}
        found.append((pair[False], pair[True]))
    return found


def spread(of: list[float]) -> str:
    low, middle, high = (100 * x for x in (min(of), statistics.median(of), max(of)))
    return f"median of the pairs {middle:+.1f} % [{low:+.1f} .. {high:+.1f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("pages", "cost"))
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=10, help="of each topic")
    parser.add_argument("--pairs", type=int, default=8)
    arguments = parser.parse_args()
    if arguments.part != "cost":
        pages(arguments.topics, arguments.partitions)
    if arguments.part != "pages":
        cost(arguments.pairs)


if __name__ == "__main__":
    main()
