"""Writes docs/METRICS.md: every metric of a broker by its names in JMX and in Prometheus, from the code's catalogue.

    python docs/list_metrics.py

Unit tests keep the committed page equal to the catalogue, and the catalogue to what brokers show.
"""

from pathlib import Path

from ottla.broker.metrics.catalogue import Described, beans, process_metrics
from ottla.pipelines.lake import metrics as lake

PAGE = Path(__file__).with_name("METRICS.md")

HEAD = """\
# Metrics of a running broker

A broker shows the metrics of a JVM broker, and a few of its own, in two ways:

| where | format | who may read |
|---|---|---|
| `ottla.metrics.listener=HOST:PORT`, over HTTP | `/metrics`: Prometheus's text or OpenMetrics, whichever the client prefers | whoever can connect: bind it to 127.0.0.1, or protect the port as you do Kafka's JMX port |
| a Unix socket, `--metrics-socket FILE` | one JSON document, by the names of MBeans | the user who runs the broker |

`ottla up` opens both for each broker: HTTP on 127.0.0.1, 100 above the broker's own port where that is free, and prints the addresses.
A broker by itself has neither unless asked. Decisions: [adr/0006](adr/0006-metrics-by-a-socket-in-the-folder.md),
[adr/0023](adr/0023-metrics-over-http-in-the-loop.md).

```sh
curl http://127.0.0.1:9192/metrics
curl http://127.0.0.1:9192/readyz
nc -U ottla-data/broker-0/metrics.sock | python3 -m json.tool
```

## For Prometheus and Grafana

Names and labels on `/metrics` are those that the usual rules of the JMX exporter for Kafka give (`kafka-2_0_0.yml`, names in lower case): boards
and alerts that were made for Kafka fill as they are. Added are `..._percent` for shares, the attributes of `socket-server-metrics`, and those of quotas by
their kind (`kafka_server_produce_byte_rate` beside `kafka_server_quota_byte_rate` with the labels resource, user, clientId), as other rules in wide use have them. Percentiles stand as quantiles of a summary, with `..._count` beside them; there is no `_sum`, as there is none in Kafka.

```yaml
scrape_configs:
  - job_name: kafka
    static_configs:
      - targets: ["127.0.0.1:9192", "127.0.0.1:9193", "127.0.0.1:9194"]
  - job_name: lake    # `ottla pipeline lake --follow` with lake.metrics_port = 9300
    static_configs:
      - targets: ["127.0.0.1:9300"]
```

Series of single topics and partitions are off: `ottla.metrics.detail=topic` adds series for each topic, `partition` also for each
replica. At most `ottla.metrics.max.series` of both are shown, whole topics and replicas at a time; `ottla_server_metrics_seriesleftout` counts
what is left out, of clients with quotas too.

Ready-made: boards in `deploy/grafana`, rules and alerts in `deploy/prometheus/rules.yml`.
They ask for the brokers as job `kafka` and for the lake job as `lake`; what the lake's alerts mean is in [PIPELINES.md](PIPELINES.md#when-the-lake-falls-behind).

### Published boards

What boards and alerts of others ask for is kept in `tests/vectors/published_boards.txt`, with repository, commit and file; a test judges each metric, with its labels.
Series of topics and partitions need `ottla.metrics.detail=partition`. "Renamed": shown by `deploy/prometheus/other_names.yml`, a job of Prometheus
with the names of Confluent's rules (`...persec`). "Of others": of a JVM, of Kubernetes, of ZooKeeper's exporter, of kafka_exporter (which works with these brokers),
or a second name for what the same panel asks for as well. What is not here, and why, is in `tests/support/published_boards.py`.

| board or alerts | metrics | shown | renamed | of others | not here |
|---|---|---|---|---|---|
| `strimzi/strimzi-kafka` | 30 | 23 | 0 | 7 | 0 |
| `strimzi/prometheus-kafka-rules` | 8 | 5 | 0 | 3 | 0 |
| `grafana/kafka-observ-lib/kafka-overview-dashboard` | 92 | 26 | 8 | 58 | 0 |
| `grafana/kafka-observ-lib/kafka-topic-dashboard` | 14 | 5 | 2 | 7 | 0 |
| `grafana/kafka-observ-lib/prometheus_alerts` | 29 | 9 | 3 | 17 | 0 |
| `grafana/kafka-mixin/kafka-overview-dashboard` | 41 | 18 | 8 | 15 | 0 |
| `grafana/kafka-mixin/kafka-topic-dashboard` | 9 | 3 | 2 | 4 | 0 |
| `confluentinc/kafka-cluster` | 64 | 29 | 18 | 11 | 6 |
| `confluentinc/kafka-topics` | 12 | 6 | 5 | 1 | 0 |
| `confluentinc/kafka-quotas` | 7 | 7 | 0 | 0 | 0 |
| `confluentinc/broker-alerts` | 6 | 4 | 1 | 0 | 1 |

## Probes

| path | answer |
|---|---|
| `/healthz` | 200 as long as the process responds; also while it recovers its logs |
| `/readyz` | 200 if the broker is registered, has not lost its ZooKeeper session (is not fenced), and all its replicas are online and in sync; else 503 and the reasons |

A rolling restart that waits for `/readyz` of each broker never takes a second replica out of an ISR. A broker that lacks a disk stays unready:
use it for the order of restarts, and let clients find brokers by a headless service with `publishNotReadyAddresses: true`.

## What a figure costs

It is looked up when someone asks, at most once a second. A request costs one addition to a list, a batch three, and every 64th request of a
kind two looks at the clock (`broker/requests/request_times.py`). A page is made in turns of 8 ms of the event loop; what it takes with 2,000
partitions is in [BENCHMARKS.md](BENCHMARKS.md). The server (`net/http_server.py`) answers GET and HEAD, one request per connection, with at most
16 connections, 8 KiB of request, 5 s for the request and 10 s for the response. On a loopback address it refuses requests for host names
other than `localhost`, so that no web page reads it by DNS rebinding.

## All metrics

Labels in brackets are there only with `ottla.metrics.detail`. The JSON document has the MBeans without them. Attributes
there are JMX's: `Value` of a gauge; `Count` and `OneMinuteRate` of a meter; `Count`, `Mean`, `Min`, `Max` and percentiles of times.
`OneMinuteRate` is the plain mean of the last minute (Kafka's weighs younger seconds more). What is of the kind `unknown` is `untyped` in
Prometheus's text.

"""

DETAILED = {"topic", "partition"}


def section(title: str, rows: list[Described], note: str = "") -> str:
    """Return a table of metrics."""
    head = f"### {title}\n\n{note}| metric | labels | kind | unit | MBean | meaning |\n|---|---|---|---|---|---|\n"
    return head + "".join(row(one) for one in rows) + "\n"


def labels(one: Described) -> str:
    """Return the labels of a metric's series, those of single topics in brackets where the metric is shown without."""
    tags = [tag.replace("-", "_") for tag in one.tags if tag]
    optional = {"topic"} if one.bean.startswith("kafka.server:type=BrokerTopicMetrics") else set()
    return ", ".join(f"[{tag}]" if tag in optional else tag for tag in tags)


def row(one: Described) -> str:
    """Return one line."""
    names = "<br>".join(f"`{name}`" for name in one.families)
    kinds = list(one.families.values())
    kind = "<br>".join(kinds if len(set(kinds)) > 1 else kinds[:1])
    return f"| {names} | {labels(one)} | {kind} | {one.unit} | `{one.name}` | {one.meaning} |\n"


def page() -> str:
    """Return the whole page."""
    text = HEAD
    by_domain: dict[str, list[Described]] = {}
    for one in beans():
        domain = one.name.partition(":")[0]
        by_domain.setdefault("ottla" if domain.startswith("ottla") else domain, []).append(one)
    for domain, rows in by_domain.items():
        if domain != "ottla":
            text += section(f"`{domain}`", rows)
    text += section("Ottla's own", by_domain["ottla"])
    text += "### The process\n\n| metric | kind | unit | meaning |\n|---|---|---|---|\n"
    for one in process_metrics():
        text += f"| `{one.bean}` | {one.kind} | {one.unit} | {one.meaning} |\n"
    text += "\n### The lake job\n\nNot on a broker's page: at `lake.metrics_port` of `ottla pipeline lake`"
    text += " ([PIPELINES.md](PIPELINES.md#when-the-lake-falls-behind)).\n\n"
    text += "| metric | labels | kind | meaning |\n|---|---|---|---|\n"
    for name, (kind, what) in lake.HELP.items():
        text += f"| `ottla_lake_{name}` | topic | {kind} | {what} |\n"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
