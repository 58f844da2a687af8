"""The fault proof: a cluster of processes under load, and one fault at a time.

Four brokers and a ZooKeeper. Broker 0 is the controller and has no replicas; 1, 2 and 3 have three
partitions each, min.insync.replicas is 2. Faults of docs/RELIABILITY.md, in two clusters.

On one machine, each broker with two log dirs, as root on file systems of their own (tests/faults/
machines.py), and with a library in its process that makes calls slow or fail (shim.c):
F9   a leader's loop stands still for longer than its session
F11  a leader bounces within its session, with an empty disk; a foreign disk is refused
F17  a disk is full            F18  a disk fails to write, to sync
F19  the last write is torn    F22  writes and syncs take two seconds
F23  all wall clocks jump      F5   two brokers, then all three, lose power at one moment

In network namespaces (tests/faults/network.py; as root):
F13  a leader's packets to its followers vanish; ZooKeeper and controller hear it
F14  a leader and ZooKeeper do not hear each other; its followers hear it
F15  the controller's packets to one broker vanish while that broker is elected
F16  links are slow and lossy
F44  a leader's host is silent for everybody: its registration stays until its session ends;
     and one whose packet filter rejects the other brokers, which is removed once;
     and one that loses power and is back without a broker: it refuses, which is a proof
F7   a leader is stopped beyond its session and goes on, with produce requests waiting for it
F8   the controller is stopped beyond its session and goes on
F6   ZooKeeper is killed and comes back after 10 s and after 60 s

Each time, what each fault must lead to is checked, and after it: every broker registered, every
ISR full, every broker's Metadata as the znodes; at the end no acknowledged record lost, doubled or
out of order (another client reads), and the replicas' logs equal byte for byte.
    sudo python tests/proofs/fault_proof.py [--only F13 F7] [--repeat 3]
What cannot be tried here says why ("not tried"). Exit status 0 only if all that was tried held; 2
where nothing could be tried.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests are no package
from faults import clocks, disks, links, stops
from faults.machines import SESSION_S, Machines, disks_or_why_not
from faults.network import HUB, Network, ScatteredCluster, ScatteredZooKeeper
from faults.proof import CLIENT_TIMEOUT_MS, SETTINGS, TOPIC, Fault, Proof, begin, judge, try_all
from faults.shim import CannotBeTriedError, compile_shim
from proofs.kill_proof import Writer
from support.cluster import add_zookeeper_option
from support.seen import Znodes

ON_ONE_MACHINE: list[tuple[str, Fault]] = [
    ("F9", stops.f9),
    ("F11", disks.f11),
    ("F17", disks.f17),
    ("F18", disks.f18),
    ("F19", disks.f19),
    ("F22", disks.f22),
    ("F23", clocks.f23),
    ("F5", disks.f5),
]
AFTER_THE_LOAD: list[tuple[str, Fault]] = [("F5", disks.f5_everywhere)]
"""What loses records that others may not miss: no load but its own, after all was judged."""
QUICK_SESSION_S = 15
"""None of what CI tries waits for the end of a session, and its cores are busy."""

IN_NAMESPACES: list[tuple[str, Fault]] = [
    ("F13", links.f13),
    ("F14", links.f14),
    ("F15", links.f15),
    ("F16", links.f16),
    ("F44", links.f44),
    ("F44", links.f44_rejected),
    ("F44", links.f44_rebooted),
    ("F7", stops.f7),
    ("F8", stops.f8),
    ("F6", lambda proof: stops.f6(proof, 10)),
    ("F6", lambda proof: stops.f6(proof, 60)),
]


def chosen(faults: list[tuple[str, Fault]], only: list[str]) -> list[tuple[str, Fault]]:
    return [(name, fault) for name, fault in faults if not only or name in only]


def on_one_machine(
    folder: Path, only: list[str], repeat: int, *, server: str = "own", quick: bool = False
) -> int:
    """Return how much was wrong; `quick`: as a test of CI, without root."""
    try:
        library = compile_shim(folder)
    except CannotBeTriedError as reason:
        print(f"without a shim: {reason}")
        library = None
    why_not = "not asked for" if quick else disks_or_why_not()
    if why_not:
        print(f"without file systems of their own: {why_not}")
    settings = SETTINGS | {
        "log_flush_interval_ms": str(int(1000 * disks.FLUSH_S)),
        "log_flush_scheduler_interval_ms": "100",
        "log_segment_bytes": "262144",
        "offsets_topic_num_partitions": "4",
        "transaction_state_log_num_partitions": "4",
        "transaction_abort_timed_out_transaction_cleanup_interval_ms": "1000",
        "group_initial_rebalance_delay_ms": "0",
    }
    session_s = QUICK_SESSION_S if quick else SESSION_S
    machines = Machines(
        folder / "machines",
        library,
        disks=not why_not,
        session_s=session_s,
        zookeeper_server=server,
        **settings,
    )
    with machines as cluster, Znodes(cluster.zookeeper) as znodes:
        admin = begin(cluster, znodes)
        with Writer(
            cluster.bootstrap, 300, Counter(), TOPIC, request_timeout_ms=CLIENT_TIMEOUT_MS
        ) as writer:
            proof = Proof(cluster, znodes, admin, writer, quick=quick)
            proof.settle()
            wrong = try_all(proof, chosen(ON_ONE_MACHINE, only) * repeat)
        wrong += judge(proof, writer, stop=not chosen(AFTER_THE_LOAD, only))
        if after := chosen(AFTER_THE_LOAD, only):
            wrong += try_all(proof, after * repeat, loaded=False)
        return wrong


def in_namespaces(prefix: str, folder: Path, only: list[str], repeat: int, server: str) -> int:
    """Run in the hub's namespace; return how much was wrong."""
    network = Network(prefix)
    zookeeper = ScatteredZooKeeper(folder / "zookeeper", network, server)
    try:
        with Znodes(zookeeper.connect) as znodes:
            with ScatteredCluster(folder, network, zookeeper.connect, **SETTINGS) as cluster:
                admin = begin(cluster, znodes)
                with Writer(
                    cluster.bootstrap, 300, Counter(), TOPIC, request_timeout_ms=CLIENT_TIMEOUT_MS
                ) as writer:
                    proof = Proof(cluster, znodes, admin, writer, network, zookeeper)
                    proof.settle()
                    wrong = try_all(proof, chosen(IN_NAMESPACES, only) * repeat)
                return wrong + judge(proof, writer)
    finally:
        zookeeper.kill()


def scattered(folder: Path, arguments: list[str]) -> int:
    """Build the namespaces and start this anew inside; return its exit status."""
    network = Network(f"ottla{os.getpid()}")
    try:
        if shutil.which("ip") is None:
            raise OSError("no `ip` command: install iproute2")
        network.build()
    except OSError as error:
        print(f"not tried: network namespaces cannot be made here (are you root?): {error}")
        network.destroy()
        return 2
    try:
        again = [sys.executable, *sys.argv, "--inside", network.prefix, *arguments]
        command = ["ip", "netns", "exec", network.name(HUB), *again, "--dir", str(folder)]
        return subprocess.run(command, check=False).returncode
    finally:
        network.destroy()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], metavar="F13")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--dir", type=Path, help="keep the clusters' files here")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    add_zookeeper_option(parser)
    args = parser.parse_args()
    if args.inside:
        wrong = in_namespaces(args.inside, args.dir, args.only, args.repeat, args.zookeeper)
        return 1 if wrong else 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.dir or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        done = []
        if chosen(ON_ONE_MACHINE, args.only):
            wrong = on_one_machine(folder, args.only, args.repeat, server=args.zookeeper)
            done.append(1 if wrong else 0)
        if chosen(IN_NAMESPACES, args.only):
            done.append(scattered(folder / "scattered", []))
    tried = [status for status in done if status != 2]
    return max(tried) if tried else 2


if __name__ == "__main__":
    sys.exit(main())
