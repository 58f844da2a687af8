"""`ottla txn`: transactions, as a person asks for them.

Invariants: nothing is aborted without a yes.
"""

from typing import Annotated, Any

from ottla.admin.options import (
    Bootstrap,
    Dir,
    DryRun,
    Output,
    Yes,
    agreed,
    ask,
    fail_for,
    needs_yes,
    usage,
)
from ottla.admin.output import Format, print_results, print_structured, print_table, say, structured
from ottla.cli import Argument, Option

Topic = Annotated[str, Argument(metavar="TOPIC", complete="topic")]
Partition = Annotated[int, Argument(metavar="PARTITION", min=0)]


def list_command(
    state: Annotated[
        list[str] | None, Option(help="Only ids in this state, such as Ongoing; repeatable")
    ] = None,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    from ottla.admin.operations import transactions

    problems: list[str] = []
    found = ask(
        directory,
        bootstrap_server,
        lambda c: transactions.list_transactions(c, state or [], problems),
    )
    if structured(output):
        print_structured(output, found)
    else:
        rows = [(t.transactional_id, t.state, t.producer_id, t.coordinator) for t in found]
        print_table(("transactional id", "state", "producer id", "coordinator"), rows)
    fail_for(problems)


def describe(
    names: Annotated[list[str], Argument(metavar="ID...", complete="transaction")],
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    from ottla.admin.operations import transactions
    from ottla.admin.session import of_each

    problems: list[str] = []

    async def question(client: Any) -> list[Any]:
        every = dict.fromkeys(names)
        found = await of_each(client, every, lambda n: transactions.describe(client, n), problems)
        return list(found.values())

    found = ask(directory, bootstrap_server, question)
    if structured(output):
        print_structured(output, found)
        fail_for(problems)
        return
    rows = [
        (
            t.transactional_id, t.state, t.producer_id, t.producer_epoch, t.coordinator,
            t.timeout_ms, t.start_ms, " ".join(t.partitions) or None,
        )
        for t in found
    ]  # fmt: skip
    heads = ("transactional id", "state", "producer id", "epoch", "coordinator")
    print_table((*heads, "timeout ms", "since ms", "partitions"), rows)
    fail_for(problems)


def producers(
    topic: Topic,
    partition: Partition,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    from ottla.admin.commands.topic_partitions import partitions
    from ottla.admin.operations import transactions

    async def question(client: Any) -> Any:
        await partitions(client, [(topic, [partition])])  # says what is not there
        return await transactions.producers(client, topic, partition)

    found = ask(directory, bootstrap_server, question)
    if structured(output):
        print_structured(output, found)
        return
    rows = [
        (
            p.producer_id, p.producer_epoch, p.last_sequence, p.last_timestamp,
            p.coordinator_epoch, p.transaction_start_offset,
        )
        for p in found
    ]  # fmt: skip
    heads = ("producer id", "epoch", "last sequence", "last time ms")
    print_table((*heads, "coordinator epoch", "transaction since"), rows)


def hanging(
    topic: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="Only this topic; repeatable [all topics]", complete="topic"),
    ] = None,
    older_than: Annotated[
        str,
        Option(
            metavar="15m", help="Ignore transactions with newer writes [transaction.max.timeout.ms]"
        ),
    ] = "15m",
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    from datetime import UTC, datetime

    from ottla.admin.operations import transactions
    from ottla.admin.operations.durations import parse_duration

    problems: list[str] = []
    (older_than_ms,) = usage(parse_duration, [older_than], "--older-than")
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    found = ask(
        directory,
        bootstrap_server,
        lambda c: transactions.hanging(c, topic, older_than_ms, now_ms, problems),
    )
    if structured(output):
        print_structured(output, found)
        fail_for(problems)
        return
    rows = [
        (h.topic, h.partition, h.producer_id, h.producer_epoch, h.start_offset, h.last_timestamp)
        for h in found
    ]
    heads = ("topic", "partition", "producer id", "epoch", "since offset", "last time ms")
    print_table(heads, rows)
    if found:
        h = found[0]
        say(f"`ottla txn abort {h.topic} {h.partition} --start-offset {h.start_offset}` ends one")
    fail_for(problems)


def abort(
    topic: Topic,
    partition: Partition,
    start_offset: Annotated[
        int, Option(help="First offset of the transaction (see `ottla txn producers`)")
    ],
    yes: Yes = False,
    dry_run: DryRun = False,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    from ottla.admin.commands.topic_partitions import partitions
    from ottla.admin.operations import transactions

    what = f"the transaction at offset {start_offset} of {topic}-{partition}"
    needs_yes(yes or dry_run, f"{what} would be lost")
    if not dry_run:
        agreed(yes, f"abort {what}?", "nothing was aborted")

    async def question(client: Any) -> Any:
        await partitions(client, [(topic, [partition])])  # says what is not there
        return await transactions.abort(client, topic, partition, start_offset, dry_run=dry_run)

    producer = ask(directory, bootstrap_server, question)
    done = "would be aborted" if dry_run else "aborted"
    say(f"{what} {done} (producer id {producer.producer_id}, epoch {producer.producer_epoch})")
    print_results(
        output,
        [
            {
                "topic": topic,
                "partition": partition,
                "start_offset": start_offset,
                "producer_id": producer.producer_id,
                "producer_epoch": producer.producer_epoch,
                "result": done,
            }
        ],
    )
