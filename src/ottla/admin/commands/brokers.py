"""`ottla broker`: stop, start, restart, kill, pause, resume, cut, drain and remove single brokers.

Invariants: a broker is named by its id; what cannot be done for one of the named brokers is said
before anything is done, where that can be known; `drain` and `stop --leaders-only` work with any
Kafka by --bootstrap-server, the others with the cluster that `ottla up` started in --dir.
"""

import signal
from typing import Annotated

from ottla.admin.connection import Local, Target
from ottla.admin.options import agreed, needs_yes
from ottla.cli import Argument, Exit, Option, UsageError
from ottla.cli.output import (
    Format,
    complain,
    print_changes,
    print_json,
    print_line,
    print_result,
    say,
)
from ottla.model.printable import plural

Ids = Annotated[list[int], Argument(metavar="ID...", complete="broker", help="Broker ids", min=0)]
Timeout = Annotated[float, Option(metavar="SECONDS", help="Longest time to wait", min=0)]


def stop(
    target: Target,
    ids: Ids,
    timeout: Timeout = 60.0,
    leaders_only: Annotated[
        bool,
        Option(
            "--leaders-only",
            help="Only move leaders off the broker, of any Kafka; stop its process yourself",
        ),
    ] = False,
    num_retries: Annotated[
        int, Option(help="With --leaders-only: how often to retry for leaders that remain", min=0)
    ] = 3,
    retry_interval_ms: Annotated[
        int, Option(metavar="MS", help="With --leaders-only: time between two attempts", min=0)
    ] = 1000,
) -> None:
    from ottla.local import brokers

    if leaders_only:
        if len(ids) != 1:
            raise UsageError("--leaders-only takes one broker")
        _move_leaders(target, ids[0], num_retries, retry_interval_ms)
        return
    if target.bootstrap_server is not None:
        raise UsageError("only processes of --dir can be stopped: use --dir, or --leaders-only")
    brokers.stop(target.folder, ids, timeout, say)
    _print_done(target, ids, "stopped")


def start(local: Local, ids: Ids) -> None:
    from ottla.local import brokers

    brokers.start(local.folder, ids, say)
    _print_done(local, ids, "started")


def restart(
    local: Local,
    ids: Annotated[list[int] | None, Argument(metavar="[ID...]", complete="broker", min=0)] = None,
    every: Annotated[bool, Option("--all", help="Restart all brokers of the cluster")] = False,
    timeout: Annotated[
        float,
        Option(metavar="SECONDS", help="Longest time to wait for replicas to be in sync", min=0),
    ] = 120.0,
    dry_run: Annotated[bool, Option("--dry-run", help="Only print the order of restarts")] = False,
) -> None:
    from ottla.local import brokers

    if bool(ids) == every:
        raise UsageError("name brokers by their ids, or all of them by --all")
    folder = local.folder
    order = brokers.restart_order(folder, ids or [])
    alone = brokers.unavailable_meanwhile(folder, [b.id for b in order])
    if alone:
        say(
            f"{plural(len(alone), 'partition has', 'partitions have')} one replica (such as "
            f"{alone[0]}), and no leader while its broker restarts"
        )
    if dry_run:
        if local.output is not Format.table:
            _print_done(local, [b.id for b in order], "would be restarted")
            return
        for broker in order:
            print_line(f"restart broker {broker.id}")
        return
    brokers.restart(folder, order, timeout, say)
    _print_done(local, [b.id for b in order], "restarted")


def kill(local: Local, ids: Ids) -> None:
    _signal(local, ids, signal.SIGKILL, "killed")


def pause(local: Local, ids: Ids) -> None:
    _signal(local, ids, signal.SIGSTOP, "paused")


def resume(local: Local, ids: Ids) -> None:
    _signal(local, ids, signal.SIGCONT, "resumed")


def cut(
    local: Local,
    broker: Annotated[int, Argument(metavar="ID", complete="broker", help="Broker id", min=0)],
    from_: Annotated[
        str,
        Option(
            "--from",
            metavar="WHOM",
            complete="broker",
            help="What to cut it from: `brokers`, `zookeeper`, `all`, or one broker id",
        ),
    ] = "all",
) -> None:
    from ottla.local import faults

    faults.cut(local.folder, broker, from_, say)
    say(f"`ottla broker heal` ends it; otherwise it ends after {faults.LASTS_S / 60:g} min")
    _print_done(local, [broker], "cut")


def heal(local: Local) -> None:
    from ottla.local import faults

    healed = faults.heal(local.folder, say)
    _print_done(local, healed, "healed")


def _signal(local: Local, ids: list[int], number: int, done: str) -> None:
    from ottla.local import brokers

    brokers.send_signal(local.folder, ids, number, say)
    _print_done(local, ids, done)


def _print_done(where: Local | Target, ids: list[int], done: str) -> None:
    from ottla.admin.results import BrokerResult

    print_changes(where.output, [BrokerResult(broker, done) for broker in ids])


def drain(
    target: Target,
    broker: Annotated[int, Argument(metavar="ID", complete="broker", help="Broker id", min=0)],
    throttle: Annotated[
        int | None,
        Option(metavar="BYTES/S", help="Limit copying, per broker and direction", min=1),
    ] = None,
    timeout: Timeout = 600.0,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Only print the plan, in Kafka's JSON format")
    ] = False,
) -> None:
    from ottla.admin import results
    from ottla.admin.operations import drain as operation
    from ottla.cli.progress import MoveProgress
    from ottla.placement import plans

    if dry_run:
        _, proposed = target.ask(lambda client: operation.plan(client, broker))
        print_line(plans.format_plan(proposed))
        return
    with MoveProgress() as shown:
        moved = target.ask(
            lambda client: operation.drain(client, broker, throttle, timeout, say, shown.tell)
        )
    say(
        f"broker {broker} no longer has replicas; {plural(moved, 'replica')} moved"
        if moved
        else f"broker {broker} has no replicas"
    )
    if target.output is Format.json:
        print_json(results.Drained(broker, moved))


def _move_leaders(target: Target, broker: int, num_retries: int, retry_interval_ms: int) -> None:
    """Ask the controller to move all leaders off a broker; Exit(1) if some stay.

    The broker leads nothing until it has been restarted.
    """
    from ottla.admin.results import ShutDown
    from ottla.client import elections
    from ottla.model.ids import Partition

    remaining = target.ask(
        lambda client: elections.shut_down(
            client,
            broker,
            num_retries,
            retry_interval_ms / 1000,
            lambda left: say(f"{plural(left, 'leader')} left, asking again"),
        ),
        timeout_s=(num_retries + 1) * (retry_interval_ms / 1000 + 30.0),
    )
    if remaining or target.output is Format.json:
        result = ShutDown(broker, Partition.all(remaining))
        print_result(target.output, result, ("still led",), [(tp,) for tp in remaining])
    if remaining:
        complain(
            f"ottla broker stop: broker {broker} still leads "
            f"{plural(len(remaining), 'partition')}; no other replica of those is alive and in sync"
        )
        raise Exit(1)
    say(f"broker {broker} leads nothing: stop its process now, or restart it to take it back")


def remove(
    local: Local,
    broker: Annotated[int, Argument(metavar="ID", complete="broker", help="Broker id", min=0)],
    yes: Annotated[bool, Option("--yes", help="Do not ask for confirmation")] = False,
    timeout: Timeout = 60.0,
) -> None:
    from ottla.local import brokers

    folder = local.folder
    folder.existing().broker(broker)
    needs_yes(yes, f"this removes broker {broker} from {folder}")
    agreed(yes, f"Remove broker {broker} from {folder}?", "nothing was removed")
    brokers.remove(folder, broker, timeout, say)
    _print_done(local, [broker], "removed")
