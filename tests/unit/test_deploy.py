"""What deploy/ has is accepted by a broker: settings, command lines; nothing runs as root."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from ottla.broker import process, zookeeper_process
from ottla.cli.grammar import read
from ottla.model.config import BrokerConfig
from ottla.model.config_keys import broker_keys, our_keys
from ottla.model.properties import parse_properties
from support.commands import parsed

DEPLOY = Path(__file__).parents[2] / "deploy"
PROPERTIES = (DEPLOY / "server.properties").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
KUBERNETES = {
    document["kind"]: document
    for document in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
}
BROKERS = [name for name in COMPOSE["services"] if name.startswith("broker-")]


def unit():
    """Return the unit's lines by section: key -> values."""
    found, section = {}, {}
    for line in (DEPLOY / "ottla-broker.service").read_text().splitlines():
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            key, equals, value = line.partition("=")
            assert equals, line
            section.setdefault(key, []).append(value)
    return found


def instructions():
    """Return the Containerfile's instructions as (word, rest)."""
    text = (DEPLOY / "Containerfile").read_text()
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.split("\n"))]


def accepted(properties, overrides=()):
    """Return the settings of a broker; each key is one of Kafka's or of ours."""
    values = parse_properties(properties) | dict(o.split("=", 1) for o in overrides)
    known = broker_keys() | our_keys()
    assert not [k for k in values if k not in known and not k.startswith("listener.name.")]
    return BrokerConfig(values)


def check_command(words):
    """Check a command line of ottla as its own parser does; return its path."""
    assert words[0] == "ottla"
    return parsed(words[1:])[0].split()


def broker_arguments(words):
    assert words[:2] == ["broker", "run"]
    return read(process.Arguments, words[2:])


def test_the_settings_are_those_of_a_broker():
    config = accepted(PROPERTIES)
    assert config.integer("min.insync.replicas") == 2
    assert config.integer("default.replication.factor") == 3
    assert not config.flag("unclean.leader.election.enable")


@pytest.mark.parametrize("name", BROKERS)
def test_a_broker_of_the_compose_file(name):
    service = COMPOSE["services"][name]
    arguments = broker_arguments(service["command"])
    config = accepted(PROPERTIES, arguments.override)
    number = int(name.removeprefix("broker-"))
    assert config.integer("broker.id") == number
    mounts = dict(volume.split(":")[:2] for volume in service["volumes"])
    assert mounts["./server.properties"] == arguments.config
    assert str(config.log_dirs[0]).startswith(mounts[name] + "/")
    inner, outer = (config.advertised_listeners[i] for i in (1, 0))
    assert (inner.host, inner.port) == (name, 19092)
    (published,) = service["ports"]
    assert published == f"127.0.0.1:{outer.port}:9092"
    assert config.text("zookeeper.connect").startswith("zookeeper:2181/")
    assert service["user"] == "10001:10001"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["depends_on"] == {"zookeeper": {"condition": "service_healthy"}}
    assert check_command(service["healthcheck"]["test"][1:]) == ["topics", "list"]


def test_the_compose_file_is_whole():
    assert len(BROKERS) == 3
    named = {v.split(":")[0] for s in COMPOSE["services"].values() for v in s["volumes"]}
    assert named - {"./server.properties"} == set(COMPOSE["volumes"])
    zookeeper = COMPOSE["services"]["zookeeper"]
    assert zookeeper["command"][:2] == ["zookeeper", "run"]
    arguments = read(zookeeper_process.Arguments, zookeeper["command"][2:])
    assert (arguments.host, arguments.client_port) == ("0.0.0.0", 2181)
    assert zookeeper["build"]["dockerfile"] == "deploy/Containerfile"


def test_the_image_does_not_run_as_root():
    found = instructions()
    assert {word for word, _ in found} <= {
        "FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "VOLUME", "EXPOSE", "STOPSIGNAL",
        "HEALTHCHECK", "ENTRYPOINT", "CMD",
    }  # fmt: skip
    last = dict(found)
    assert last["USER"] == "10001:10001"
    assert last["STOPSIGNAL"] == "SIGTERM"
    bases = [rest.split()[0] for word, rest in found if word == "FROM"]
    assert bases == ["python:3.13-slim"] * 2
    check = yaml.safe_load(last["HEALTHCHECK"].partition("CMD ")[2])
    assert check_command(check) == ["topics", "list"]
    assert yaml.safe_load(last["ENTRYPOINT"]) == ["ottla"]
    arguments = broker_arguments(yaml.safe_load(last["CMD"]))
    assert arguments.config == "/etc/ottla/server.properties"
    assert parse_properties(PROPERTIES)["log.dirs"].startswith(last["VOLUME"] + "/")


def test_the_stateful_set():
    assert set(KUBERNETES) == {"ConfigMap", "Service", "PodDisruptionBudget", "StatefulSet"}
    spec = KUBERNETES["StatefulSet"]["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["/bin/sh", "-c"]
    (script,) = container["args"]
    script = script.removeprefix("exec ").replace("${HOSTNAME##*-}", "2")
    for name, value in {"$HOSTNAME": "ottla-2", "$NAMESPACE": "kafka"}.items():
        script = script.replace(name, value)
    words = shlex.split(script)
    assert words[0] == "ottla"
    arguments = broker_arguments(words[1:])
    settings = KUBERNETES["ConfigMap"]["data"]["server.properties"]
    config = accepted(settings, arguments.override)
    assert config.integer("broker.id") == 2
    (listener,) = config.advertised_listeners
    service = KUBERNETES["Service"]
    assert listener.host == f"ottla-2.{service['metadata']['name']}.kafka.svc"
    assert spec["serviceName"] == service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    labels = spec["template"]["metadata"]["labels"]
    assert labels == spec["selector"]["matchLabels"] == service["spec"]["selector"]
    budget = KUBERNETES["PodDisruptionBudget"]["spec"]
    assert (budget["maxUnavailable"], budget["selector"]["matchLabels"]) == (1, labels)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert check_command(container["readinessProbe"]["exec"]["command"]) == ["topics", "list"]
    mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
    assert arguments.config == f"{mounts['config']}/server.properties"
    assert str(config.log_dirs[0]).startswith(mounts["data"] + "/")
    claims = [claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]]
    assert set(mounts) == {*claims, *(volume["name"] for volume in pod["volumes"])}


def test_the_unit():
    found = unit()
    assert set(found) == {"Unit", "Service", "Install"}
    service = found["Service"]
    (command,) = service["ExecStart"]
    program, *words = shlex.split(command)
    assert program == "/opt/ottla/bin/ottla"
    arguments = broker_arguments(words)
    folders = {
        f"/{place}/{service[key][0]}/"
        for key, place in {
            "StateDirectory": "var/lib", "LogsDirectory": "var/log", "RuntimeDirectory": "run",
        }.items()
    }  # fmt: skip
    written = [
        arguments.state_change_log,
        arguments.metrics_socket,
        parse_properties(PROPERTIES)["log.dirs"],
    ]
    assert all(any(path.startswith(folder) for folder in folders) for path in written)
    assert service["User"] == ["ottla"]
    for hardening in ("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectHome"):
        assert service[hardening] == ["yes"]
    assert service["ProtectSystem"] == ["strict"]
    assert service["CapabilityBoundingSet"] == [""]
    # A broker reads /proc/sys/kernel/random/boot_id.
    assert "ProcSubset" not in service


def test_a_setting_that_no_broker_has_is_found():
    with pytest.raises(AssertionError):
        accepted(PROPERTIES + "min.insync.replica=2\n")


KUBECTL = """#!/bin/sh
# As kubectl does: what the command prints to standard error stays there.
echo "$1 $2" >> "$CALLS"
[ "$1" = exec ] || exit 0
case $(grep -c "exec $2" "$CALLS") in
    1) exit 1 ;; # the broker does not answer yet
    2) echo 'orders  0  1  1  0,1,2  0,2  under-replicated' ;;
    *) echo '0 partitions found' >&2 ;;
esac
"""


def test_pods_restart_one_by_one_each_once_all_is_in_sync(tmp_path):
    """The loop of PRODUCTION.md, with a kubectl that plays a broker which comes back."""
    page = (DEPLOY.parent / "docs" / "PRODUCTION.md").read_text()
    (loop,) = re.findall(r"^```sh\n(for pod in .*?)^```$", page, re.MULTILINE | re.DOTALL)
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    calls = tmp_path / "calls"
    subprocess.run(
        ["bash", "-euc", loop.replace("sleep 2", "sleep 0.01")],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": str(calls)},
        check=True, capture_output=True, timeout=20,
    )  # fmt: skip
    one = ["delete pod", "wait --for=condition=Ready", *(["exec {}"] * 3)]
    expected = [line.format(pod) for pod in ("ottla-0", "ottla-1", "ottla-2") for line in one]
    assert calls.read_text().splitlines() == expected
