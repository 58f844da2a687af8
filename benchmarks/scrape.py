"""What a scrape of a broker's metrics costs its event loop, with thousands of partitions.

    python benchmarks/scrape.py                     2,000 partitions, all series, 12 scrapes
    python benchmarks/scrape.py --partitions 4000 --every 1

One broker as a process of its own, with its metrics over HTTP and `ottla.metrics.detail=partition`,
is scraped as Prometheus does. Reported, for each detail: size and time of a page, processor time of
the broker per scrape (its own idle time taken off), as a share of a core at a scrape each 5 s, that
of the measuring of the loop's lateness, which runs while someone scrapes, and how late the event
loop was meanwhile, by that (fifty times a second, waiting for a core left out) and by requests; and
what an answer to /healthz and to /readyz takes.
What prometheus-client would take for as many series, in one call, is measured beside it.
"""

import argparse
import asyncio
import contextlib
import http.client
import json
import tempfile
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from ottla.admin.operations.status import metrics_of
from ottla.local import cluster as local_cluster
from ottla.local.cluster_dir import ClusterDir
from ottla.log.files import OsFiles
from ottla.net import runtime
from ottla.net.peer import PeerConnection
from ottla.wire.messages.cluster import ApiVersionsRequest

LATENESS = "ottla:type=EventLoop,name=LatenessMs"
INTERVAL_S = 5.0
PROBES = 200


def cpu_s(pid):
    """Return the processor time of a process in seconds, to the nanosecond."""
    ran = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            ran += int((task / "schedstat").read_text().split()[0])
    return ran / 1e9


def scrape(port, path="/metrics"):
    """Return a page and the time in seconds that it took."""
    began = time.perf_counter()
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    client.request("GET", path, headers={"Accept": "application/openmetrics-text"})
    response = client.getresponse()
    body = response.read()
    assert response.status == 200, response.status
    client.close()
    return body, time.perf_counter() - began


async def ping(address, seconds, took):
    """Send small requests one after the other, and note how long each took."""
    host, _, port = address.rpartition(":")
    world = runtime.real_world(OsFiles())
    peer = await PeerConnection.open(world, host, int(port), "scrape", timeout_s=5)
    until = time.monotonic() + seconds
    request = ApiVersionsRequest(client_software_name="b", client_software_version="1")
    while time.monotonic() < until:
        began = time.perf_counter()
        await peer.send(request, 3, 5)
        took.append(time.perf_counter() - began)
        await asyncio.sleep(0.002)
    peer.close()


async def scraped(broker, count, every_s):
    """Scrape `count` times; return bodies and seconds."""
    pages, began = [], time.monotonic()
    for number in range(count):
        await asyncio.sleep(max(0.0, began + number * every_s - time.monotonic()))
        pages.append(await asyncio.to_thread(scrape, broker.metrics_port))
    await asyncio.sleep(max(0.0, began + count * every_s - time.monotonic()))
    return pages


async def probed(broker, path, took):
    """Ask a probe again and again, as often as there is time, and note how long each took."""
    for _ in range(PROBES):
        took.append((await asyncio.to_thread(scrape, broker.metrics_port, path))[1])


def probes(broker, idle_share):
    """Return what an answer to each probe takes; `idle_share`: of a core, without any."""
    found = {}
    for path in ("/healthz", "/readyz"):
        took = []
        began = time.monotonic()
        busy_s, _ = processor_s(broker, probed(broker, path, took))
        busy_s -= idle_share * (time.monotonic() - began)
        took.sort()
        found[path] = {
            "processor_ms": round(busy_s * 1000 / PROBES, 2),
            "percent_of_a_core_each_5_s": round(busy_s / PROBES / INTERVAL_S * 100, 4),
            "ms_median_p99_longest": [
                round(took[place] * 1000, 1) for place in (PROBES // 2, PROBES * 99 // 100, -1)
            ],
        }
    return found


def processor_s(broker, work):
    """Return the processor time of a broker while `work` is done, and what that returns."""
    before = cpu_s(broker.process.pid)
    found = asyncio.run(work)
    return cpu_s(broker.process.pid) - before, found


async def requests(broker, seconds, pages=None):
    """Send requests for so long, beside some other work; return how long each took."""
    took = []
    await asyncio.gather(ping(broker.address, seconds, took), *([] if pages is None else [pages]))
    return took


def ours(partitions, detail, count, every_s):
    """Run a broker, scrape it, and return the figures."""
    with tempfile.TemporaryDirectory() as path:
        folder = ClusterDir(Path(path) / "c")
        settings = {
            "ottla.metrics.detail": detail, "auto.leader.rebalance.enable": "false",
            "log.retention.check.interval.ms": "3600000",
        }  # fmt: skip
        cluster, _ = local_cluster.up(
            folder, local_cluster.Wanted(brokers=1, any_ports=True, settings=settings)
        )
        try:
            broker = cluster.brokers[0]
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
            topics = [NewTopic(f"topic-{n}", 100, 1) for n in range(partitions // 100)]
            for future in admin.create_topics(topics, operation_timeout=60).values():
                future.result(60)
            del admin
            time.sleep(3)
            seconds = count * every_s
            unwatched_s, _ = processor_s(broker, asyncio.sleep(seconds))
            scrape(broker.metrics_port)
            time.sleep(2)
            idle_s, _ = processor_s(broker, asyncio.sleep(seconds))
            busy_s, pages = processor_s(broker, scraped(broker, count, every_s))
            quiet = asyncio.run(requests(broker, seconds / 2))
            before = metrics_of(folder.metrics_socket(broker.id))[LATENESS]
            took = asyncio.run(requests(broker, seconds, scraped(broker, count, every_s)))
            late = metrics_of(folder.metrics_socket(broker.id))[LATENESS]
            answered = probes(broker, idle_s / seconds)
        finally:
            local_cluster.down(folder)
    late_at_least = {
        name.removeprefix("CountFrom"): late[name] - before[name]
        for name in late
        if name.startswith("CountFrom") and late[name] > before[name]
    }
    per_scrape_ms = max(0.0, busy_s - idle_s) * 1000 / count
    body = pages[-1][0]
    return {
        "detail": detail,
        "partitions": partitions,
        "series": sum(line[:1] not in (b"#", b"") for line in body.split(b"\n")),
        "bytes": len(body),
        "page_ms": round(sorted(t for _, t in pages)[len(pages) // 2] * 1000, 1),
        "processor_ms_per_scrape": round(per_scrape_ms, 1),
        "percent_of_a_core_each_5_s": round(per_scrape_ms / INTERVAL_S / 10, 2),
        "percent_of_a_core_of_the_lateness": round((idle_s - unwatched_s) / seconds * 100, 2),
        "probes": answered,
        "late_by_ms": late_at_least,
        "request_ms_p99_idle_and_scraped": [
            round(sorted(times)[int(len(times) * 0.99)] * 1000, 1) for times in (quiet, took)
        ],
        "request_ms_longest_idle_and_scraped": [
            round(max(times) * 1000, 1) for times in (quiet, took)
        ],
    }


def of_prometheus_client(series):
    """Return the time in ms that the library takes for as many series, in one call."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import GaugeMetricFamily

    class Collector:
        def collect(self):
            for number in range(10):
                family = GaugeMetricFamily(f"m{number}", "help", labels=["topic", "partition"])
                for partition in range(series // 10):
                    family.add_metric(
                        [f"topic-{partition // 100}", str(partition % 100)], partition
                    )
                yield family

    registry = CollectorRegistry()
    registry.register(Collector())
    times = []
    for _ in range(3):
        began = time.perf_counter()
        generate_latest(registry)
        times.append(time.perf_counter() - began)
    return round(min(times) * 1000, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--partitions", type=int, default=2000)
    parser.add_argument("--scrapes", type=int, default=12)
    parser.add_argument("--every", type=float, default=1.5, metavar="SECONDS")
    arguments = parser.parse_args()
    for detail in ("broker", "partition"):
        found = ours(arguments.partitions, detail, arguments.scrapes, arguments.every)
        print(json.dumps(found, indent=2))
    print(
        f"prometheus-client, {found['series']} series: {of_prometheus_client(found['series'])} ms"
    )


if __name__ == "__main__":
    main()
