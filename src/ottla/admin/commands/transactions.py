"""`ottla txn`: transactions, as a person asks for them.

Invariants: nothing is aborted without a yes.
"""

from typing import TYPE_CHECKING, Annotated

from ottla.admin.connection import Target
from ottla.admin.options import DryRun, Yes, agreed, fail_for, needs_yes, usage
from ottla.cli import Argument, Option
from ottla.cli.output import Format, print_changes, print_result, say

if TYPE_CHECKING:
    from ottla.client.client import Client

Topic = Annotated[str, Argument(metavar="TOPIC", complete="topic")]
Partition = Annotated[int, Argument(metavar="PARTITION", min=0)]


def list_command(
    target: Target,
    state: Annotated[
        list[str] | None, Option(help="Only ids in this state, such as Ongoing; repeatable")
    ] = None,
) -> None:
    from ottla.client import transactions

    problems: list[str] = []
    found = target.ask(lambda c: transactions.list_transactions(c, state or [], problems))
    rows = [(t.transactional_id, t.state, t.producer_id, t.coordinator) for t in found]
    print_result(
        target.output, found, ("transactional id", "state", "producer id", "coordinator"), rows
    )
    fail_for(problems)


def describe(
    target: Target,
    names: Annotated[list[str], Argument(metavar="ID...", complete="transaction")],
) -> None:
    from ottla.admin.session import of_each
    from ottla.client import transactions

    problems: list[str] = []

    async def question(client: "Client") -> list[transactions.TransactionFacts]:
        every = dict.fromkeys(names)
        found = await of_each(client, every, lambda n: transactions.describe(client, n), problems)
        return list(found.values())

    found = target.ask(question)
    rows = [
        (
            t.transactional_id,
            t.state,
            t.producer_id,
            t.producer_epoch,
            t.coordinator,
            t.timeout_ms,
            t.start_ms,
            " ".join(map(str, t.partitions)) or None,
        )
        for t in found
    ]
    heads = ("transactional id", "state", "producer id", "epoch", "coordinator")
    print_result(target.output, found, (*heads, "timeout ms", "since ms", "partitions"), rows)
    fail_for(problems)


def producers(
    target: Target,
    topic: Topic,
    partition: Partition,
) -> None:
    from ottla.admin.commands.topics import chosen_partitions
    from ottla.client import transactions

    async def question(client: "Client") -> list[transactions.ProducerFacts]:
        await chosen_partitions(client, [(topic, [partition])])  # says what is not there
        return await transactions.producers(client, topic, partition)

    found = target.ask(question)
    rows = [
        (
            p.producer_id,
            p.producer_epoch,
            p.last_sequence,
            p.last_timestamp,
            p.coordinator_epoch,
            p.transaction_start_offset,
        )
        for p in found
    ]
    heads = ("producer id", "epoch", "last sequence", "last time ms")
    print_result(target.output, found, (*heads, "coordinator epoch", "transaction since"), rows)


def hanging(
    target: Target,
    topic: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="Only this topic; repeatable [all topics]", complete="topic"),
    ] = None,
    older_than: Annotated[
        str,
        Option(metavar="15m", help="Ignore transactions with newer writes"),
    ] = "15m",
) -> None:
    from datetime import UTC, datetime

    from ottla.admin.operations.typed_values import parse_duration
    from ottla.client import transactions

    problems: list[str] = []
    (older_than_ms,) = usage(parse_duration, [older_than], "--older-than")
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    found = target.ask(lambda c: transactions.hanging(c, topic, older_than_ms, now_ms, problems))
    rows = [
        (h.topic, h.partition, h.producer_id, h.producer_epoch, h.start_offset, h.last_timestamp)
        for h in found
    ]
    heads = ("topic", "partition", "producer id", "epoch", "since offset", "last time ms")
    print_result(target.output, found, heads, rows)
    if found and target.output is not Format.json:
        h = found[0]
        say(f"`ottla txn abort {h.topic} {h.partition} --start-offset {h.start_offset}` ends one")
    fail_for(problems)


def abort(
    target: Target,
    topic: Topic,
    partition: Partition,
    start_offset: Annotated[
        int, Option(help="First offset of the transaction (see `ottla txn producers`)")
    ],
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    from ottla.admin.commands.topics import chosen_partitions
    from ottla.admin.results import Aborted
    from ottla.client import transactions

    what = f"the transaction at offset {start_offset} of {topic}-{partition}"
    needs_yes(yes or dry_run, f"{what} would be lost")
    if not dry_run:
        agreed(yes, f"abort {what}?", "nothing was aborted")

    async def question(client: "Client") -> transactions.ProducerFacts:
        await chosen_partitions(client, [(topic, [partition])])  # says what is not there
        return await transactions.abort(client, topic, partition, start_offset, dry_run=dry_run)

    producer = target.ask(question)
    done = "would be aborted" if dry_run else "aborted"
    say(f"{what} {done} (producer id {producer.producer_id}, epoch {producer.producer_epoch})")
    aborted = Aborted(
        topic, partition, start_offset, producer.producer_id, producer.producer_epoch, done
    )
    print_changes(target.output, [aborted])
