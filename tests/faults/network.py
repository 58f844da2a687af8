"""Brokers and ZooKeeper, each in a network namespace of its own on one bridge.

A link is cut by giving the other side's address a hardware address that nobody has, so packets
vanish in one direction and no error tells anybody. A slow, lossy link has netem on both of its
sides, or, in a kernel without netem, a relay in user space between them.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from faults.relay import Relay
from ottla.zookeeper import embedded, jars
from support.cluster import OttlaCluster

BROKERS = 4
SESSION_S = 6
NETWORK = "198.18.0"
ZOOKEEPER = 100
HUB = 254
NOWHERE = "02:00:00:00:00:ff"


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def ip(*arguments: str) -> None:
    run("ip", *arguments)


def host(broker: int) -> int:
    return broker + 1


class Network:
    """Namespaces on a bridge: one for the test itself, one for ZooKeeper and for each broker."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.hosts = [*range(1, BROKERS + 1), ZOOKEEPER]
        self._relays: dict[int, Relay] = {}

    def name(self, host: int) -> str:
        return f"{self.prefix}-{host}"

    def build(self) -> None:
        hub = self.name(HUB)
        for one in (HUB, *self.hosts):
            ip("netns", "add", self.name(one))
            ip("-n", self.name(one), "link", "set", "lo", "up")
        ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", hub, "addr", "add", f"{NETWORK}.{HUB}/24", "dev", "bridge")
        ip("-n", hub, "link", "set", "bridge", "up")
        for one in self.hosts:
            there = self.name(one)
            pair = ("type", "veth", "peer", "eth0", "netns", there)
            ip("-n", hub, "link", "add", f"to{one}", *pair)
            ip("-n", hub, "link", "set", f"to{one}", "master", "bridge", "up")
            ip("-n", there, "addr", "add", f"{NETWORK}.{one}/24", "dev", "eth0")
            ip("-n", there, "link", "set", "eth0", "up")

    def destroy(self) -> None:
        for one in (HUB, *self.hosts):
            subprocess.run(["ip", "netns", "del", self.name(one)], capture_output=True, check=False)

    def cut(self, source: int, target: int) -> None:
        """Let what one host sends to another vanish."""
        entry = (f"{NETWORK}.{target}", "lladdr", NOWHERE, "dev", "eth0", "nud", "permanent")
        ip("-n", self.name(source), "neigh", "replace", *entry)

    def heal(self, source: int, target: int) -> None:
        ip("-n", self.name(source), "neigh", "del", f"{NETWORK}.{target}", "dev", "eth0")

    def reject(self, target: int, port: int) -> list[tuple[str, ...]]:
        """Refuse other brokers' packets to a port by TCP resets; return what `accept` takes."""
        rules = [
            ("INPUT", "-s", f"{NETWORK}.{source}", "-p", "tcp", "--dport", str(port),
             "-j", "REJECT", "--reject-with", "tcp-reset")
            for source in self.hosts
            if source not in (target, ZOOKEEPER)
        ]  # fmt: skip
        for rule in rules:
            ip("netns", "exec", self.name(target), "iptables", "-w", "-A", *rule)
        return rules

    def accept(self, target: int, rules: list[tuple[str, ...]]) -> None:
        for rule in rules:
            ip("netns", "exec", self.name(target), "iptables", "-w", "-D", *rule)

    # --- slow, lossy links ------------------------------------------------------------------------

    def spoil(self, one: int) -> str:
        """Make what a host sends and receives slow and lossy; return how."""
        hub = self.name(HUB)
        try:
            for where in (("-n", hub, "qdisc", "add", "dev", f"to{one}"), self._own(one)):
                run("tc", *where, "root", "netem", "delay", "60ms", "40ms", "loss", "5%")
        except OSError:  # no netem in this kernel
            pair = ("type", "veth", "peer", f"far{one}")
            ip("-n", hub, "link", "add", f"near{one}", *pair)
            for name in (f"near{one}", f"far{one}"):
                ip("-n", hub, "link", "set", name, "up")
            ip("-n", hub, "link", "set", f"to{one}", "nomaster")
            ip("-n", hub, "link", "set", f"far{one}", "master", "bridge")
            self._relays[one] = Relay(f"to{one}", f"near{one}", (0.02, 0.1), 0.05)
            return "relay: 20 to 100 ms, 5 % lost, each way"
        return "netem: 20 to 100 ms, 5 % lost, each way"

    def _own(self, one: int) -> tuple[str, ...]:
        return ("-n", self.name(one), "qdisc", "add", "dev", "eth0")

    def mend(self, one: int) -> int:
        """Undo `spoil`; return how many packets were lost."""
        hub = self.name(HUB)
        relay = self._relays.pop(one, None)
        if relay is not None:
            lost = relay.close()
            ip("-n", hub, "link", "del", f"near{one}")
            ip("-n", hub, "link", "set", f"to{one}", "master", "bridge")
            return lost
        lost = 0
        for where in ((hub, f"to{one}"), (self.name(one), "eth0")):
            said = run("tc", "-n", where[0], "-s", "qdisc", "show", "dev", where[1])
            run("tc", "-n", where[0], "qdisc", "del", "dev", where[1], "root")
            found = re.search(r"dropped (\d+)", said)
            lost += int(found[1]) if found else 0
        return lost


class ScatteredCluster(OttlaCluster):
    """Brokers of ours, each in its own namespace."""

    def __init__(self, folder: Path, network: Network, zookeeper: str, **settings: str) -> None:
        super().__init__(
            folder,
            BROKERS,
            zookeeper=zookeeper,
            session_timeout_ms=1000 * SESSION_S,
            **settings,
        )
        self._network = network

    def host(self, broker: int) -> str:
        return f"{NETWORK}.{host(broker)}"

    def command(self, broker: int, config: Path) -> list[str]:
        inside = ["ip", "netns", "exec", self._network.name(host(broker))]
        return [*inside, *super().command(broker, config)]


class ScatteredZooKeeper:
    """A ZooKeeper server in its own namespace: a real one, or ours."""

    def __init__(self, folder: Path, network: Network, server: str = "java") -> None:
        folder.mkdir(parents=True)
        self._log = folder / "zookeeper.out"
        self.connect = f"{NETWORK}.{ZOOKEEPER}:2181"
        inside = ("ip", "netns", "exec", network.name(ZOOKEEPER))
        if server == "own":
            self._command = [
                *(*inside, sys.executable, "-m", "ottla", "zookeeper", "run"),
                *("--data-dir", str(folder / "data"), "--host", f"{NETWORK}.{ZOOKEEPER}"),
            ]
            self.start()
            return
        config = folder / "zoo.cfg"
        config.write_text(
            f"dataDir={folder}/data\nclientPort=2181\ntickTime=1000\nmaxClientCnxns=0\n"
            "admin.enableServer=false\n"
        )
        self._command = [
            *inside,
            *(str(jars.find_java()), "-Xmx256m", "-XX:+UseSerialGC"),
            *("-Dzookeeper.jmx.log4j.disable=true", "-cp"),
            *(os.pathsep.join(map(str, jars.find_jars())), embedded.MAIN_CLASS, str(config)),
        ]
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as out:
            self.process = subprocess.Popen(
                self._command, stdout=out, stderr=out, start_new_session=True
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)
