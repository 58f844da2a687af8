"""Commands for the cluster on this machine: `up`, `down`, `status`, `demo`.

Invariants: `status` works with any Kafka by --bootstrap-server; exit code 1 when something is down.
"""

import contextlib
import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ottla.admin.connection import Local, Target
from ottla.cli import Exit, Option, UsageError
from ottla.cli.output import (
    Format,
    megabytes,
    print_json,
    print_line,
    print_table,
    print_watched,
    say,
)
from ottla.cli.tables import bad, good
from ottla.model.errors import OttlaError
from ottla.model.printable import plural
from ottla.model.process import ended_in_order

if TYPE_CHECKING:
    from ottla.admin.operations.status import BrokerStatus, Status
    from ottla.local.cluster import Wanted
    from ottla.local.cluster_dir import ClusterDir

EXIT_FAILED = 1


def up(
    local: Local,
    brokers: Annotated[
        int | None, Option("-n", "--brokers", help="Number of brokers, 1 to 50 [3]", min=1, max=50)
    ] = None,
    port_base: Annotated[
        int | None,
        Option(help="Brokers listen on this port and those after it [9092, or free ones]"),
    ] = None,
    zookeeper: Annotated[
        str | None,
        Option(
            metavar="KIND|HOST:PORT",
            help="`own`, `embedded-java` (on the same files), or a running one [own]",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="A broker setting; repeatable"),
    ] = None,
    listen: Annotated[
        str | None,
        Option(metavar="ADDRESS", help="Brokers listen on this address [127.0.0.1]"),
    ] = None,
    advertise: Annotated[
        str | None,
        Option(metavar="HOST", help="Host name that clients connect to [--listen]"),
    ] = None,
    adopt: Annotated[
        bool, Option("--adopt", help="Turn a copied folder into a cluster of its own")
    ] = False,
    secure: Annotated[
        bool,
        Option(
            "--secure",
            help="Use TLS with a new CA, SCRAM users and ACLs; cannot be undone",
        ),
    ] = False,
    schema_registry: Annotated[
        bool,
        Option(
            "--schema-registry", help="Start a schema registry beside the brokers, now and later"
        ),
    ] = False,
    foreground: Annotated[
        bool, Option("--foreground", help="Stay in the foreground; stop everything on Ctrl-C")
    ] = False,
) -> None:
    from ottla.local import cluster as local_cluster

    folder = local.folder
    try:
        chosen = local_cluster.parse_settings(settings or [])
    except OttlaError as error:
        raise UsageError(str(error)) from None
    wanted = local_cluster.Wanted(
        brokers,
        port_base,
        zookeeper,
        chosen,
        listen=listen,
        advertise=advertise,
        adopt=adopt,
        secure=secure,
        schema_registry=schema_registry,
    )
    with ended_in_order():
        _up(folder, wanted, local.output, foreground=foreground)


def _up(folder: "ClusterDir", wanted: "Wanted", output: Format, *, foreground: bool) -> None:
    from ottla.local import cluster as local_cluster

    cluster, started = local_cluster.up(folder, wanted, say)
    if output is Format.json:
        from ottla.admin.results import StartedBroker, Up

        found = [StartedBroker(b.id, b.address, b.metrics_address) for b in cluster.brokers]
        print_json(
            Up(
                str(folder),
                started,
                cluster.bootstrap,
                cluster.zookeeper.address,
                cluster.zookeeper.server,
                str(folder.clients_dir) if cluster.secure else None,
                found,
                cluster.registry.url if cluster.registry is not None else None,
            )
        )
    count = plural(len(cluster.brokers), "broker")
    lines: tuple[str, ...] = (
        f"{count} up in {folder}" if started else f"{count} already up in {folder}",
        f"bootstrap.servers={cluster.bootstrap}",
        f"zookeeper.connect={cluster.zookeeper.address}",
    )
    pages = [b.metrics_address for b in cluster.brokers if b.metrics_address is not None]
    if pages:
        lines = (*lines, f"metrics={','.join(pages)}")
    if cluster.registry is not None:
        lines = (*lines, f"schema.registry.url={cluster.registry.url}")
    if cluster.secure and started:
        from ottla.local.secure import client_settings

        lines = (*lines, *client_settings(folder, cluster))
    if foreground:
        local_cluster.stay(folder, lines, say)
        return
    for line in lines:
        say(line)


def down(local: Local) -> None:
    from ottla.local import cluster as local_cluster

    folder = local.folder
    stopped, forced = local_cluster.down(folder)
    say(
        f"{plural(stopped, 'process', 'processes')} stopped"
        + (f", {forced} by force" if forced else "")
        if stopped
        else f"nothing of {folder} was running"
    )
    if local.output is Format.json:
        from ottla.admin.results import Down

        print_json(Down(str(folder), stopped, forced))


def status(
    target: Target,
    watch: Annotated[
        float | None,
        Option(metavar="SECONDS", help="Repeat at this interval, until Ctrl-C", min=0.1),
    ] = None,
    count: Annotated[int | None, Option(help="With --watch: stop after N times", min=1)] = None,
) -> None:
    if count is not None and watch is None:
        raise UsageError("--count goes with --watch")
    healthy = True
    with contextlib.ExitStack() as stack:
        if watch is not None:
            stack.enter_context(contextlib.suppress(KeyboardInterrupt))
            stack.enter_context(ended_in_order())
        for shown in itertools.count(1):
            found = _found(target)
            healthy = found.healthy
            _show_status(found, target.output, watched=watch is not None)
            if watch is None or shown == count:
                break
            time.sleep(watch)
    if not healthy:
        raise Exit(EXIT_FAILED)


def _found(target: Target) -> "Status":
    from ottla.admin.operations import status as cluster_status

    if target.where.address is None:
        return cluster_status.of_folder(target.where.folder)
    return target.ask(cluster_status.ask)


def _show_status(found: "Status", output: Format, *, watched: bool) -> None:
    from ottla.admin.operations import status as cluster_status

    shown = cluster_status.with_verdict(found)
    if watched:
        print_watched(output, shown, lambda: print_status(found))
    elif output is Format.json:
        print_json(shown)
    else:
        print_status(found)


def demo(
    fast: Annotated[
        bool, Option("--fast", help="Produce fewer records, with the same kills")
    ] = False,
    directory: Annotated[
        Path | None, Option("--dir", help="Keep all files in this folder [a temporary folder]")
    ] = None,
    port_base: Annotated[int | None, Option(help="As for `ottla up` [free ports]")] = None,
    zookeeper: Annotated[
        str | None, Option(metavar="KIND|HOST:PORT", help="As for `ottla up`")
    ] = None,
    spark: Annotated[bool, Option(help="Run the Spark pipeline at the end")] = True,
) -> None:
    from ottla.admin.demo.run import Options, run

    with ended_in_order():
        held = run(Options(fast, directory, port_base, zookeeper, spark))
    if not held:
        raise Exit(EXIT_FAILED)


def _state(broker: "BrokerStatus") -> object:
    if broker.paused:
        return bad("paused")
    return good("up") if broker.alive else bad("down" if broker.pid is None else "not registered")


def print_status(status: "Status") -> None:
    """Print a table of brokers, why some are down, and a summary of the partitions."""
    asked = any(b.alive for b in status.brokers)  # else no one says who leads what
    rows = [
        (
            b.id,
            b.address,
            _state(b),
            "controller" if b.controller else "",
            b.leads if asked else None,
            b.replicas if asked else None,
            b.pid,
            megabytes(b.resident_bytes),
            None if b.idle is None else f"{b.idle:.0%}",
        )
        for b in status.brokers
    ]
    columns = ("broker", "address", "state", "", "leads", "replicas", "pid", "memory", "idle")
    print_table(columns, rows)
    if status.zookeeper:
        state = "up" if status.zookeeper_running else "down"
        print_line(f"ZooKeeper {status.zookeeper} ({status.zookeeper_server}): {state}")
    if status.disk:
        print_line(f"disk: {status.disk}")
    for b in status.brokers:
        if b.reason:
            print_line(f"broker {b.id}: {b.reason}")
        if b.damaged:
            print_line(
                f"broker {b.id}: {plural(b.damaged, 'damaged log')}, see `damaged` in its log"
            )
    print_line(
        status.problem
        or f"{plural(status.topics, 'topic')}, {plural(status.partitions, 'partition')}: "
        f"{status.under_replicated} under-replicated, {status.without_leader} without a leader"
    )
