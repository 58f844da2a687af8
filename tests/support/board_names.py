"""Which metrics published boards and alerts for Kafka ask for, as a table for tests/vectors.

    python tests/support/board_names.py FOLDER > tests/vectors/published_boards.txt

FOLDER holds a clone of each repository, as owner+name. Only names of metrics and of labels are
taken. A line that begins with `=` names a source: repository, commit, file. Each line after it is a
metric and the labels by which it is selected there.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STRIMZI, GRAFANA = "strimzi/strimzi-kafka-operator", "grafana/jsonnet-libs"
CONFLUENT = "confluentinc/jmx-monitoring-stacks"
_STRIMZI = "packaging/examples/metrics/"
_CONFLUENT = "jmxexporter-prometheus-grafana/assets/"
_BOARDS = f"{_CONFLUENT}grafana/provisioning/dashboards/"
SOURCES = (
    (STRIMZI, f"{_STRIMZI}grafana-dashboards/strimzi-kafka.json"),
    (STRIMZI, f"{_STRIMZI}prometheus-install/prometheus-rules/prometheus-kafka-rules.yaml"),
    (GRAFANA, "kafka-observ-lib/dashboards_out/kafka-overview-dashboard.json"),
    (GRAFANA, "kafka-observ-lib/dashboards_out/kafka-topic-dashboard.json"),
    (GRAFANA, "kafka-observ-lib/prometheus_rules_out/prometheus_alerts.yaml"),
    (GRAFANA, "kafka-mixin/dashboards_out/kafka-overview-dashboard.json"),
    (GRAFANA, "kafka-mixin/dashboards_out/kafka-topic-dashboard.json"),
    (CONFLUENT, f"{_BOARDS}kafka-cluster.json"),
    (CONFLUENT, f"{_BOARDS}kafka-topics.json"),
    (CONFLUENT, f"{_BOARDS}kafka-quotas.json"),
    (CONFLUENT, f"{_CONFLUENT}prometheus/prometheus-alerts/broker-alerts.yml"),
)
QUERIES = ("expr", "query", "definition")
METRIC = re.compile(
    r"\b((?:kafka|jvm|java|process|zookeeper|container|kubelet|leader|num)_[a-z0-9_]+)(\{[^}]*\})?"
)
LABEL = re.compile(r"([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)")
LISTED = re.compile(r"label_values\(\s*([a-z0-9_]+).*,\s*(\w+)\s*\)")
NO_METRICS = {"kafka_cluster", "kafka_topic", "kafka_partition", "kafka_broker"}
"""Labels and variables that look like metrics."""


def expressions(found: Any) -> Iterator[str]:
    """Yield all queries in a document."""
    if isinstance(found, dict):
        for key, value in found.items():
            if key in QUERIES and isinstance(value, str):
                yield value
            else:
                yield from expressions(value)
    elif isinstance(found, list):
        for value in found:
            yield from expressions(value)


def metrics(queries: Iterator[str]) -> dict[str, set[str]]:
    """Return the labels by which each metric is selected."""
    found: dict[str, set[str]] = {}
    for query in queries:
        for name, selector in METRIC.findall(query):
            if name not in NO_METRICS:
                found.setdefault(name, set()).update(LABEL.findall(selector))
        for name, label in LISTED.findall(query):
            found.setdefault(name, set()).add(label)
    return found


def git(clone: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(clone), *words], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def document(text: str, path: str) -> Any:
    if path.endswith(".json"):
        return json.loads(text)
    import yaml

    return list(yaml.safe_load_all(text))


def main() -> int:
    (folder,) = sys.argv[1:]
    print("# Written by `python tests/support/board_names.py`, which says what a line means.")
    for repository, path in SOURCES:
        clone = Path(folder) / repository.replace("/", "+")
        clone = clone / "repo" if (clone / "repo").is_dir() else clone
        commit = git(clone, "rev-parse", "HEAD").strip()[:12]
        print(f"= {repository} {commit} {path}")
        found = metrics(expressions(document(git(clone, "show", f"HEAD:{path}"), path)))
        for name in sorted(found):
            print(f"{name} {','.join(sorted(found[name]))}".rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
