"""What published boards and alerts for Kafka ask for, and whether each metric of it is shown.

`tests/vectors/published_boards.txt` has what they ask for, with the repository, commit and file of
each. What is asked by the names of other rules is renamed by deploy/prometheus/other_names.yml.
"""

import functools
import re
from pathlib import Path

import yaml

from support.exported import exported

ROOT = Path(__file__).resolve().parents[2]
VECTORS = ROOT / "tests" / "vectors" / "published_boards.txt"
OTHER_NAMES = ROOT / "deploy" / "prometheus" / "other_names.yml"

# Metrics that are of no broker, or second names; with the reason.
OF_OTHERS = {
    r"(jvm|java_lang)_.*": "of a JVM",
    r"(container|kubelet)_.*": "of Kubernetes",
    r"zookeeper_.*|leader_uptime|num_alive_connections": "of ZooKeeper's own exporter",
    r"kafka_consumergroup_.*|kafka_consumer_lag_.*|kafka_topic_partition_current_offset": (
        "of kafka_exporter, which asks brokers as a client and works with these"
    ),
    r"kafka_server_(replicamanager|kafkaserver)_total_.*|.*persec_count|kafka_.*_value": (
        "by the rules of a chart; the same panels ask by the usual names as well"
    ),
    r"kafka_tier_.*|kafka_log_log_tiersize": "tiered storage of Confluent's server",
    r"kafka_server_replicamanager_stray.*": "of KRaft",
}
# Metrics of Kafka's brokers that are not here, with the reason.
NOT_HERE = {
    r"kafka_network_acceptor_.*": "there is no such thread",
    r"kafka_server_kafkarequesthandlerpool_controlplane.*": "there is no such thread",
    r"kafka_network_requestmetrics_deprecated.*": "not counted",
    r"kafka_server_replicafetchermanager_minfetchrate": "not counted: a fetcher is a task",
    r"kafka_server_socketservermetrics_connection_(close|creation)_rate": (
        "rates: rate() of the connections that were made"
    ),
    r"kafka_server_socketservermetrics_connections": "not counted by client software",
}
SHOWN, RENAMED, OTHER, MISSING = "shown", "renamed", "of others", "not here"
OF_SCRAPE = {
    "area", "client_software_name", "cluster", "container", "env", "hostname", "instance", "job",
    "kafka_cluster", "kubernetes_pod_name", "namespace", "persistentvolumeclaim", "pod",
    "strimzi_io_cluster", "strimzi_io_name",
}  # fmt: skip
"""Labels that Prometheus adds to what it scrapes."""


@functools.cache
def sources():
    """Return what each source asks for: labels by metric."""
    found = {}
    for line in VECTORS.read_text(encoding="utf-8").splitlines():
        if line.startswith("= "):
            repository, _, path = line[2:].split()
            owner, folder = repository.partition("/")[0], path.partition("/")[0]
            inner = [folder] if folder.startswith("kafka-") else []
            asked = found["/".join([owner, *inner, Path(path).stem])] = {}
        elif not line.startswith("#"):
            name, _, labels = line.partition(" ")
            asked[name] = {label for label in labels.split(",") if label}
    return found


def relabelled(name, labels, rules):
    """Return a metric and its labels after rules of relabelling, as Prometheus would."""
    for rule in rules:
        pattern = re.compile(str(rule["regex"]))
        text = re.sub(r"\$\{?(\d)\}?", r"\\\1", rule.get("replacement", "$1"))
        action = rule.get("action", "replace")
        if action == "replace":
            assert rule["source_labels"] == [rule["target_label"]] == ["__name__"]
            match = pattern.fullmatch(name)
            name = match.expand(text) if match else name
        elif action == "labelmap":
            found = (pattern.fullmatch(one) for one in labels)
            labels = labels | {match.expand(text) for match in found if match}
        else:
            assert action == "labeldrop"
            labels = {one for one in labels if not pattern.fullmatch(one)}
    return name, labels


@functools.cache
def renamed():
    """Return what other_names.yml makes of what is shown: labels by metric."""
    (job,) = yaml.safe_load(OTHER_NAMES.read_text(encoding="utf-8"))["scrape_configs"]
    rules = job["metric_relabel_configs"]
    return dict(relabelled(name, labels, rules) for name, labels in exported().items())


def judged(name, labels):
    """Return whether a metric is shown, and how; None if that is not known."""
    for how, known in ((SHOWN, exported()), (RENAMED, renamed())):
        if name in known:
            missing = labels - OF_SCRAPE - known[name]
            if not missing:
                return how
            if missing == {"quantile"}:
                return OTHER  # no rules give a counter quantiles: nobody's fills that
    return next(
        (how for how, reasons in ((OTHER, OF_OTHERS), (MISSING, NOT_HERE))
         if any(re.fullmatch(what, name) for what in reasons)),
        None,
    )  # fmt: skip
