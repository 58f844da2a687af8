"""The command line: what a person types, and what they are told when it does not work.

Who may call: `ottla.__main__`. Invariants: exit code 0 means it held, 1 it failed, 2 it was typed
wrong; bad input is one line naming the thing, the reason and the way out, never a traceback; a
command imports what it needs when it runs, so that `ottla --help` is instant; every command takes
--bootstrap-server and works with any Kafka, or finds the cluster that `ottla up` started in --dir.
"""

import contextlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ottla.admin import (
    configs_command,
    elect_command,
    groups_command,
    log_dirs_command,
    reassign_command,
    topics_command,
    transactions_command,
)
from ottla.admin.options import Bootstrap, Dir, Output, ask, bootstrap, cluster_folder
from ottla.admin.output import Format, plural, print_json, say
from ottla.model.errors import OttlaError

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130

app = typer.Typer(
    name="ottla",
    help="A replicated log that speaks Apache Kafka's protocol. `ottla up` starts a cluster here.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(topics_command.app, name="topics")
app.add_typer(configs_command.app, name="configs")
app.add_typer(groups_command.app, name="groups")
app.add_typer(transactions_command.app, name="txn")
app.add_typer(reassign_command.app, name="reassign")
app.command("elect")(elect_command.elect)
app.command("log-dirs")(log_dirs_command.log_dirs)


# -- the cluster on this machine ----------------------------------------------------------------


@app.command()
def up(
    brokers: Annotated[int | None, typer.Option("-n", "--brokers", help="How many [3]")] = None,
    directory: Dir = None,
    port_base: Annotated[
        int | None,
        typer.Option(help="Brokers listen on this port and those after it [9092, or free ones]"),
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Use this ZooKeeper instead of starting one"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A broker setting; may be repeated"),
    ] = None,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay, and stop everything on Ctrl-C")
    ] = False,
) -> None:
    """Start ZooKeeper and brokers on this machine, or what of them does not run."""
    from ottla.admin import local_cluster  # noqa: PLC0415 - lazy
    from ottla.admin.foreground import stay  # noqa: PLC0415 - lazy

    folder = cluster_folder(directory)
    wanted = local_cluster.Wanted(
        brokers, port_base, zookeeper, local_cluster.parse_settings(settings or [])
    )
    cluster, started = local_cluster.up(folder, wanted, say)
    count = plural(len(cluster.brokers), "broker")
    lines = (
        f"{count} up in {folder}" if started else f"{count} already up in {folder}",
        f"bootstrap.servers={cluster.bootstrap}",
        f"zookeeper.connect={cluster.zookeeper.address}",
    )
    if foreground:
        stay(folder, lines)
        return
    for line in lines:
        say(line)


@app.command()
def down(directory: Dir = None) -> None:
    """Stop the brokers and ZooKeeper that `ottla up` started; data stays."""
    from ottla.admin import local_cluster  # noqa: PLC0415 - lazy

    folder = cluster_folder(directory)
    stopped, forced = local_cluster.down(folder)
    say(
        f"{plural(stopped, 'process').replace('processs', 'processes')} stopped"
        + (f", {forced} by force" if forced else "")
        if stopped
        else f"nothing of {folder} was running"
    )


@app.command()
def status(
    directory: Dir = None, bootstrap_server: Bootstrap = None, output: Output = Format.table
) -> None:
    """Show brokers, controller and the health of partitions. Exit code 1 if something is down."""
    from ottla.admin import status as cluster_status  # noqa: PLC0415 - lazy

    found = (
        cluster_status.of_cluster(bootstrap_server)
        if bootstrap_server
        else cluster_status.of_folder(cluster_folder(directory))
    )
    if output is Format.json:
        print_json(cluster_status.as_json(found))
    else:
        cluster_status.print_status(found)
    if not found.healthy:
        raise typer.Exit(EXIT_FAILED)


# -- records ------------------------------------------------------------------------------------


def _acks(text: str) -> int:
    try:
        return {"all": -1, "-1": -1, "0": 0, "1": 1}[text]
    except KeyError:
        raise typer.BadParameter(f"--acks {text}: write 0, 1 or all") from None


@app.command()
def produce(
    topic: str,
    key_separator: Annotated[
        str | None, typer.Option(help="What stands between key and value; without it no keys")
    ] = None,
    acks: Annotated[str, typer.Option(help="0, 1 or all")] = "all",
    timeout_ms: Annotated[int, typer.Option(help="How long a record may take", min=1)] = 120_000,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
) -> None:
    """Produce lines of standard input, one record each."""
    from ottla.admin import produce as producing  # noqa: PLC0415 - lazy
    from ottla.admin import topics  # noqa: PLC0415 - lazy
    from ottla.admin.session import world  # noqa: PLC0415 - lazy

    if key_separator == "":
        raise typer.BadParameter("--key-separator is empty; write one, as --key-separator=:")
    separator = key_separator.encode() if key_separator is not None else None
    wanted_acks = _acks(acks)

    async def run(client: Any) -> int:
        here = world()
        writer = producing.Writer(
            client, here, topic, acks=wanted_acks, timeout_s=timeout_ms / 1000
        )
        facts = await topics.describe_topic(client, topic)
        await writer.open(len(facts.partitions))
        try:
            await producing.produce_lines(here, writer, producing.Lines(separator))
        finally:
            say(f"{plural(writer.written, 'record')} produced to {topic}")
        return writer.written

    ask(directory, bootstrap_server, run)


@app.command()
def consume(
    topic: str,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the first record, not the end")
    ] = False,
    partition: Annotated[
        list[int] | None, typer.Option(help="Only this partition; may be repeated")
    ] = None,
    offset: Annotated[
        int | None, typer.Option(help="Start here; needs exactly one --partition", min=0)
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="Read as a member of this group, and commit what was printed"),
    ] = None,
    max_messages: Annotated[int | None, typer.Option(help="Stop after so many", min=1)] = None,
    timeout_ms: Annotated[
        int | None, typer.Option(help="Stop when nothing came for so long", min=1)
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option(help="Print keys too, with this before the value")
    ] = None,
    output: Annotated[Format, typer.Option("--output", help="table: values; json: all")] = (
        Format.table
    ),
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
) -> None:
    """Print records, one line each, until Ctrl-C, --max-messages or --timeout-ms."""
    from ottla.admin import consume_command  # noqa: PLC0415 - lazy

    if offset is not None and len(partition or []) != 1:
        raise typer.BadParameter("--offset belongs to one partition: add --partition N")
    if group is not None and partition:
        raise typer.BadParameter("--group shares the partitions out: leave --partition away")
    consume_command.run(
        bootstrap(bootstrap_server, directory),
        consume_command.Wanted(
            topic=topic,
            from_beginning=from_beginning,
            partitions=partition or [],
            offset=offset,
            max_messages=max_messages,
            timeout_ms=timeout_ms,
            key_separator=key_separator,
            as_json=output is Format.json,
            group=group,
        ),
    )


@app.command()
def demo(
    fast: Annotated[bool, typer.Option("--fast", help="Fewer records, same kills")] = False,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Keep everything here [a temporary folder]")
    ] = None,
    port_base: Annotated[int | None, typer.Option(help="As of `ottla up` [free ports]")] = None,
    zookeeper: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="As of `ottla up`")
    ] = None,
    spark: Annotated[bool, typer.Option(help="Run the Spark pipeline at the end")] = True,
) -> None:
    """Three brokers, two kill -9, flights produced, verified, and landed in Parquet by Spark."""
    from ottla.admin.demo.run import Options, run  # noqa: PLC0415 - lazy

    if not run(Options(fast, directory, port_base, zookeeper, spark)):
        raise typer.Exit(EXIT_FAILED)


# -- the way in and out -------------------------------------------------------------------------

_USAGE_ERROR: Any = typer.BadParameter.__mro__[1]
_ANY_USAGE_PROBLEM: Any = _USAGE_ERROR.__mro__[1]


def _end_like_ctrl_c(number: int, _frame: object) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    with contextlib.suppress(ValueError):  # not in the main thread: nothing to catch there
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _end_like_ctrl_c)
    try:
        code = app(args=arguments, standalone_mode=False)
    except _ANY_USAGE_PROBLEM as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "ottla"
        # No arguments at all: the error is the help text.
        say(error.format_message() if type(error).__name__ == "NoArgsIsHelpError" else
            f"{path}: {error.format_message()}")  # fmt: skip
        return EXIT_USAGE
    except OttlaError as error:
        say(f"ottla: {error}")
        return EXIT_FAILED
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter must not write to it again.
        with contextlib.suppress(OSError):
            sys.stdout.close()
        return EXIT_OK
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        say(f"ottla: {where}{error.strerror or error}")
        return EXIT_FAILED
    except (KeyboardInterrupt, typer.Abort):
        code = EXIT_INTERRUPTED
    if code == EXIT_INTERRUPTED:  # what typer makes of an interrupt that it caught itself
        if arguments is None:
            # The interpreter takes its time to go; a second Ctrl-C meanwhile would kill it by
            # signal, and its caller would hear another exit code.
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
        say("ottla: interrupted")
    return code if isinstance(code, int) else EXIT_OK
