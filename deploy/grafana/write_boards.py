"""Writes the boards beside it: what a cluster, a broker, topics, groups and the controller do.

    python deploy/grafana/write_boards.py

A board is rows of panels; a panel is a title, a unit of Grafana, and expressions with the text of
their legend. Tests keep the committed boards equal to what this writes, and every metric that a
board names to what brokers show. `topic=""` leaves the series of single topics out, which are there
with `ottla.metrics.detail=topic`. The lake job (`ottla pipeline lake`) is a target
of another job of Prometheus than the brokers: its panels do not ask for `$job`.
"""

import json
from pathlib import Path

FOLDER = Path(__file__).parent
OF = 'job="$job"'
ONE = 'job="$job", instance=~"$instance"'
CHOSEN = f'{OF}, topic=~"$topic", topic!=""'
COLUMNS, HEIGHT = 24, 8

TOPICS = "kafka_server_brokertopicmetrics_"
MANAGER = "kafka_server_replicamanager_"
TIMES = "kafka_network_requestmetrics_"
CONTROLLER = "kafka_controller_kafkacontroller_"
STATS = "kafka_controller_controllerstats_"
GROUPS = "kafka_coordinator_group_groupmetadatamanager_"
LAKE = "ottla_lake_"
OF_A_TABLE = "instance, topic"


def rate(metric, selector, by="instance"):
    return f"sum by ({by}) (rate({metric}{{{selector}}}[$__rate_interval]))"


def total(metric, selector, by="instance"):
    return f"sum by ({by}) ({metric}{{{selector}}})"


def all_topics(name, selector):
    """Return the rate of something of all topics together, of each broker."""
    return rate(f"{TOPICS}{name}_total", f'{selector}, topic=""')


def by_topic(name):
    return f"topk(20, {rate(f'{TOPICS}{name}_total', CHOSEN, 'topic')})"


def times(name, requests):
    return f'max by (request) ({TIMES}{name}{{{ONE}, quantile="0.99", request=~"{requests}"}})'


def stat(title, expression, unit="short", bad_from=None):
    """Return a number; red from `bad_from` on."""
    return {"title": title, "kind": "stat", "unit": unit, "bad_from": bad_from,
            "targets": [(expression, "")]}  # fmt: skip


def graph(title, unit, *targets):
    """Return a graph of expressions, each with its legend."""
    return {"title": title, "kind": "timeseries", "unit": unit, "targets": targets}


BOARDS = {
    "cluster": (
        "Kafka cluster",
        (),
        [
            ("Is all well", [
                stat("brokers that respond", f"sum(up{{{OF}}})"),
                stat("active controllers", f"sum({CONTROLLER}activecontrollercount{{{OF}}})"),
                stat("partitions without a leader",
                     f"max({CONTROLLER}offlinepartitionscount{{{OF}}})", bad_from=1),
                stat("partitions that refuse acks=all",
                     f"sum({MANAGER}underminisrpartitioncount{{{OF}}})", bad_from=1),
                stat("partitions that lack a replica",
                     f"sum({MANAGER}underreplicatedpartitions{{{OF}}})", bad_from=1),
                stat("replicas offline", f"sum({MANAGER}offlinereplicacount{{{OF}}})", bad_from=1),
            ]),
            ("Records", [
                graph("records in", "cps", (all_topics("messagesin", OF), "{{instance}}")),
                graph("bytes in", "Bps", (all_topics("bytesin", OF), "{{instance}}")),
                graph("bytes out", "Bps", (all_topics("bytesout", OF), "{{instance}}")),
                graph("bytes copied in", "Bps", (all_topics("replicationbytesin", OF), "{{instance}}")),
            ]),
            ("Replicas", [
                graph("partitions that lack a replica", "short",
                      (total(f"{MANAGER}underreplicatedpartitions", OF), "{{instance}}")),
                graph("partitions led", "short", (total(f"{MANAGER}leadercount", OF), "{{instance}}")),
                graph("changes of ISRs", "cps",
                      (rate(f"{MANAGER}isrshrinks_total", OF), "{{instance}} shrinks"),
                      (rate(f"{MANAGER}isrexpands_total", OF), "{{instance}} expands"),
                      (rate(f"{MANAGER}failedisrupdates_total", OF), "{{instance}} refused")),
                graph("records that the furthest follower is behind", "short",
                      (total("kafka_server_replicafetchermanager_maxlag", OF), "{{instance}}")),
            ]),
            ("Brokers", [
                graph("idle time of the event loop", "percentunit",
                      (total("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", OF),
                       "{{instance}}")),
                graph("memory", "bytes", (total("process_resident_memory_bytes", OF), "{{instance}}")),
                graph("processor (100 % is one core)", "percentunit",
                      (rate("process_cpu_seconds_total", OF), "{{instance}}")),
                graph("time of ZooKeeper's responses", "ms",
                      ((f'max by (instance) (kafka_server_zookeeperclientmetrics_'
                       f'zookeeperrequestlatencyms{{{OF}, quantile="0.99"}})'),
                       "{{instance}} 99th percentile")),
                graph("state of the ZooKeeper session", "short",
                      (f'ottla_server_zookeepersession_state{{{OF}, state="connected"}}',
                       "{{instance}} connected")),
            ]),
        ],
    ),
    "broker": (
        "Kafka broker",
        ("instance",),
        [
            ("Requests", [
                graph("requests", "reqps",
                      (rate(f"{TIMES}requests_total", ONE, "request"), "{{request}}")),
                graph("time of requests, 99th percentile", "ms", (times("totaltimems", ".+"), "{{request}}")),
                graph("time in the handler, 99th percentile", "ms",
                      (times("localtimems", "Produce|FetchConsumer|FetchFollower"), "{{request}}")),
                graph("time of waiting, 99th percentile", "ms",
                      (times("remotetimems", "Produce|FetchConsumer|FetchFollower"), "{{request}}")),
            ]),
            ("Event loop", [
                graph("idle time of the event loop", "percentunit",
                      (total("kafka_network_socketserver_networkprocessoravgidle_percent", ONE),
                       "{{instance}}")),
                graph("event loop late by more than", "percentunit", *(
                    ((f'1 - rate(ottla_eventloop_lateness_seconds_bucket{{{ONE}, le="{bound}"}}'
                     "[$__rate_interval]) / ignoring (le) rate(ottla_eventloop_lateness_seconds_count"
                     f"{{{ONE}}}[$__rate_interval])"), f"{{{{instance}}}} {bound} s")
                    for bound in ("0.02", "0.1", "1"))),
                graph("requests and responses that wait", "short",
                      (total("kafka_network_requestchannel_requestqueuesize", ONE), "{{instance}} requests"),
                      (total("kafka_network_requestchannel_responsequeuesize", ONE),
                       "{{instance}} responses")),
                graph("operations in the purgatory", "short",
                      (total("kafka_server_delayedoperationpurgatory_numdelayedoperations", ONE,
                             "instance, delayedOperation"), "{{instance}} {{delayedOperation}}")),
                graph("operations whose time was over", "cps",
                      (rate("ottla_server_purgatory_expired_total", ONE), "{{instance}}")),
            ]),
            ("Memory and connections", [
                graph("memory of large requests and of responses", "bytes",
                      (total("kafka_network_socketserver_memorypoolused", ONE), "{{instance}} requests"),
                      (total("ottla_socketserver_responsebytes", ONE), "{{instance}} responses")),
                graph("connections", "short",
                      (total("kafka_server_socket_server_metrics_connection_count", ONE,
                             "instance, listener"), "{{instance}} {{listener}}")),
                graph("reads from the tail cache", "percentunit",
                      ((f"{rate('ottla_log_tailcache_hits_total', ONE)} / "
                       f"({rate('ottla_log_tailcache_hits_total', ONE)} + "
                       f"{rate('ottla_log_tailcache_misses_total', ONE)})"), "{{instance}}")),
                graph("tail cache", "bytes", (total("ottla_log_tailcache_bytes", ONE), "{{instance}}")),
            ]),
            ("Disks", [
                graph("log directories that failed", "short",
                      (total("kafka_log_logmanager_offlinelogdirectorycount", ONE), "{{instance}}")),
                graph("damaged logs and corrupt reads", "short",
                      (total("ottla_log_logmanager_damagedlogcount", ONE), "{{instance}} damaged"),
                      (total("ottla_log_logmanager_setasidelogcount", ONE), "{{instance}} set aside"),
                      (total("ottla_log_logmanager_corruptreads", ONE), "{{instance}} corrupt reads")),
                graph("time of a flush", "ms",
                      ((f'max by (instance) (kafka_log_logflushstats_logflushrateandtimems{{{ONE}, '
                       f'quantile="0.99"}})'), "{{instance}} 99th percentile")),
                graph("file descriptors", "short",
                      (total("process_open_fds", ONE), "{{instance}} open"),
                      (total("process_max_fds", ONE), "{{instance}} most")),
                graph("committed records cut off", "short",
                      (f"increase(ottla_server_replicamanager_lostrecords_total{{{ONE}}}[1h])",
                       "{{instance}}")),
            ]),
        ],
    ),
    "topics": (
        "Kafka topics",
        ("topic",),
        [
            ("Needs ottla.metrics.detail=topic", [
                graph("records in", "cps", (by_topic("messagesin"), "{{topic}}")),
                graph("bytes in", "Bps", (by_topic("bytesin"), "{{topic}}")),
                graph("bytes out", "Bps", (by_topic("bytesout"), "{{topic}}")),
                graph("batches refused", "cps",
                      (by_topic("failedproducerequests"), "{{topic}}")),
                graph("bytes of batches that are too large", "Bps",
                      (by_topic("bytesrejected"), "{{topic}}")),
            ]),
            ("Needs ottla.metrics.detail=partition", [
                graph("size of all replicas", "bytes",
                      (total("kafka_log_log_size", f'{OF}, topic=~"$topic"', "topic"), "{{topic}}")),
                graph("records kept", "short",
                      ((f'sum by (topic) (max by (topic, partition) (kafka_log_log_logendoffset{{{OF}, '
                       'topic=~"$topic"}) - max by (topic, partition) (kafka_log_log_logstartoffset'
                       f'{{{OF}, topic=~"$topic"}}))'), "{{topic}}")),
                graph("partitions that lack a replica", "short",
                      (total("kafka_cluster_partition_underreplicated",
                             f'{OF}, topic=~"$topic"', "topic"), "{{topic}}")),
                graph("records that followers are behind", "short",
                      (('topk(20, max by (topic, partition) (kafka_server_fetcherlagmetrics_consumerlag'
                       f'{{{OF}, topic=~"$topic"}}))'), "{{topic}}-{{partition}}")),
            ]),
        ],
    ),
    "groups": (
        "Kafka consumer groups",
        (),
        [
            ("Groups, on their coordinators", [
                graph("groups", "short", (total(f"{GROUPS}numgroups", OF), "{{instance}}")),
                graph("groups by state", "short", *(
                    (f"sum({GROUPS}numgroups{state.replace(' ', '')}{{{OF}}})", state)
                    for state in ("stable", "preparing rebalance", "completing rebalance", "empty"))),
                graph("committed offsets", "short", (total(f"{GROUPS}numoffsets", OF), "{{instance}}")),
                graph("requests of members", "reqps",
                      (rate(f"{TIMES}requests_total",
                            f'{OF}, request=~"JoinGroup|SyncGroup|Heartbeat|LeaveGroup|OffsetCommit"',
                            "request"), "{{request}}")),
            ]),
            ("Spark streaming: the lake job (needs lake.metrics_port)", [
                graph("lag: offsets that have not landed", "short",
                      (total(f"{LAKE}lag_offsets", "", OF_A_TABLE), "{{instance}} {{topic}}")),
                graph("rows and dead letters", "cps",
                      (rate(f"{LAKE}rows_total", "", OF_A_TABLE), "{{instance}} {{topic}}"),
                      (rate(f"{LAKE}dead_letters_total", "", OF_A_TABLE),
                       "{{instance}} {{topic}} dead letters")),
                graph("time since the last batch, and until all has landed", "s",
                      (f"time() - {LAKE}last_commit_seconds", "{{instance}} {{topic}} since"),
                      (f"{LAKE}lag_offsets / {LAKE}rows_per_second", "{{instance}} {{topic}} until")),
                graph("batches in an hour, and offsets lost", "short",
                      (f"increase({LAKE}batches_total[1h])", "{{instance}} {{topic}} batches"),
                      (f"increase({LAKE}lost_offsets_total[1h])", "{{instance}} {{topic}} lost")),
            ]),
        ],
    ),
    "controller": (
        "Kafka controller",
        (),
        [
            ("Controller", [
                graph("active controller", "short",
                      (total(f"{CONTROLLER}activecontrollercount", OF), "{{instance}}")),
                graph("events and requests that wait", "short",
                      (total("kafka_controller_controllereventmanager_eventqueuesize", OF),
                       "{{instance}} events"),
                      (total("kafka_controller_controllerchannelmanager_totalqueuesize", OF),
                       "{{instance}} requests")),
                graph("partitions without a leader", "short",
                      (f"max({CONTROLLER}offlinepartitionscount{{{OF}}})", "")),
                graph("partitions not led by their first replica", "short",
                      (f"max({CONTROLLER}preferredreplicaimbalancecount{{{OF}}})", "")),
            ]),
            ("Elections", [
                graph("leaders elected, by cause", "cps",
                      (rate(f"ottla_{STATS.removeprefix('kafka_')}elections_total", OF, "cause"),
                       "{{cause}}")),
                graph("unclean elections", "short",
                      (f"sum(increase({STATS}uncleanleaderelections_total{{{OF}}}[1h]))", "")),
                graph("time of a change of brokers", "ms",
                      (f'max({STATS}leaderelectionrateandtimems{{{OF}, quantile="0.99"}})',
                       "99th percentile")),
                graph("time until a crash is noticed", "ms",
                      (f'max(ottla_controller_crashdetection_prooftimems{{{OF}, quantile="0.99"}})',
                       "99th percentile")),
                graph("brokers removed after a crash, in an hour", "short",
                      ((f"sum(increase(ottla_{STATS.removeprefix('kafka_')}registrationsremoved_total"
                       f"{{{OF}}}[1h]))"), "brokers")),
            ]),
            ("Time of events, 99th percentile", [
                graph("events", "ms", *(
                    (f'max({STATS}{name}rateandtimems{{{OF}, quantile="0.99"}})', text)
                    for name, text in (
                        ("controllerchange", "new controller"), ("isrchange", "ISR change"),
                        ("topicchange", "topic change"), ("topicdeletion", "topic deletion"),
                        ("partitionreassignment", "reassignment"),
                        ("controlledshutdown", "controlled shutdown"),
                    ))),
                graph("size of the cluster", "short",
                      (f"max({CONTROLLER}globaltopiccount{{{OF}}})", "topics"),
                      (f"max({CONTROLLER}globalpartitioncount{{{OF}}})", "partitions"),
                      (f"max({CONTROLLER}activebrokercount{{{OF}}})", "brokers")),
            ]),
        ],
    ),
}  # fmt: skip

SOURCE = {"type": "prometheus", "uid": "$source"}
QUERIES = {
    "job": "label_values(kafka_server_kafkaserver_brokerstate, job)",
    "instance": 'label_values(kafka_server_kafkaserver_brokerstate{job="$job"}, instance)',
    "topic": f'label_values({TOPICS}messagesin_total{{job="$job", topic!=""}}, topic)',
}


def variable(name):
    """Return a variable that lists the values of a label."""
    several = name != "job"
    return {
        "name": name, "type": "query", "datasource": SOURCE, "refresh": 2, "sort": 1,
        "query": {"query": QUERIES[name], "refId": name}, "definition": QUERIES[name],
        "multi": several, "includeAll": several, "allValue": ".+" if several else None,
    }  # fmt: skip


def panel(number, described, x, y, width):
    """Return one panel as Grafana keeps it."""
    kind = described["kind"]
    defaults = {"unit": described["unit"]}
    if kind == "stat":
        steps = [{"color": "green", "value": None}]
        if described["bad_from"] is not None:
            steps.append({"color": "red", "value": described["bad_from"]})
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value"}
    else:
        defaults["custom"] = {"fillOpacity": 5, "lineWidth": 1, "showPoints": "never"}
        options = {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                   "tooltip": {"mode": "multi", "sort": "desc"}}  # fmt: skip
    return {
        "id": number, "type": kind, "title": described["title"], "datasource": SOURCE,
        "gridPos": {"h": HEIGHT if kind != "stat" else HEIGHT // 2, "w": width, "x": x, "y": y},
        "fieldConfig": {"defaults": defaults, "overrides": []}, "options": options,
        "targets": [
            {"refId": "ABCDEFGH"[i], "expr": expression, "legendFormat": legend, "datasource": SOURCE}
            for i, (expression, legend) in enumerate(described["targets"])
        ],
    }  # fmt: skip


def board(name):
    """Return a board as Grafana imports it."""
    title, variables, rows = BOARDS[name]
    panels, y, number = [], 0, 0
    for row, (row_title, described) in enumerate(rows):
        panels.append(
            {"id": 1000 + row, "type": "row", "title": row_title, "collapsed": False, "panels": [],
             "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y}}
        )  # fmt: skip
        y += 1
        width = COLUMNS // len(described)
        for place, one in enumerate(described):
            number += 1
            panels.append(panel(number, one, place * width, y, width))
        y += max(p["gridPos"]["h"] for p in panels[-len(described) :])
    source = {"name": "source", "type": "datasource", "query": "prometheus", "label": "data source"}
    return {
        "uid": f"ottla-{name}", "title": title, "tags": ["kafka", "ottla"], "timezone": "browser",
        "schemaVersion": 39, "version": 1, "editable": True, "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source, *map(variable, ("job", *variables))]},
        "panels": panels,
    }  # fmt: skip


def text(name):
    return json.dumps(board(name), indent=1) + "\n"


if __name__ == "__main__":
    for name in BOARDS:
        (FOLDER / f"{name}.json").write_text(text(name), encoding="utf-8")
