"""`ottla topics offsets` and `delete-records`: where logs begin and end, and where they are cut.

Invariants: nothing is deleted without a yes; --dry-run changes nothing; exit code 1 if anything
asked for was refused.
"""

from typing import TYPE_CHECKING, Annotated

from ottla.admin.commands.topic_partitions import named_like, parse_pattern, parse_topic
from ottla.admin.commands.topic_partitions import partitions as chosen_partitions
from ottla.admin.connection import Target
from ottla.admin.options import DryRun, Regex, Yes, agreed, fail_for, needs_yes, read_input, usage
from ottla.cli import Argument, Exit, Option, UsageError
from ottla.cli.output import complain, print_result, say
from ottla.model.printable import plural
from ottla.model.protocol import EARLIEST, LATEST, OF_MAX_TIMESTAMP

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.model.ids import TopicPartition


def offsets(
    target: Target,
    topics: Annotated[
        list[str] | None, Argument(metavar="[TOPIC[:0,1]]...", complete="topic")
    ] = None,
    regex: Regex = False,
    at: Annotated[
        str | None,
        Option(
            metavar="PLACE", help="Offset at: beginning, end, newest (timestamp), a time, 1h (ago)"
        ),
    ] = None,
) -> None:
    from ottla.admin.operations.typed_values import parse_place
    from ottla.admin.results import Offsets
    from ottla.client.offsets import log_offsets
    from ottla.client.topics import list_topics
    from ottla.model.ids import TopicPartition

    moment = OF_MAX_TIMESTAMP if at == "newest" else None
    if at is not None and moment is None:
        moment = usage(parse_place, [at], "--at")[0].timestamp
        if moment is None:
            raise UsageError(f"--at {at}: write beginning, end, newest or a time")
    chosen = usage(parse_topic, [] if regex else topics or [], "")
    patterns = usage(parse_pattern, topics or [], "TOPIC") if regex else None

    problems: list[str] = []

    async def question(client: "Client") -> list[Offsets]:
        if chosen:
            wanted = await chosen_partitions(client, chosen)
        else:
            facts = await list_topics(client)
            names = [t.name for t in facts]
            names = names if patterns is None else named_like(names, patterns)
            wanted = [
                TopicPartition(t.name, p.partition)
                for t in facts
                if t.name in names
                for p in t.partitions
            ]
        if moment is not None:
            found = await log_offsets(client, wanted, moment, problems=problems)
            return [Offsets(*tp, offset=found.get(tp)) for tp in wanted]
        starts = await log_offsets(client, wanted, EARLIEST, problems=problems)
        ends = await log_offsets(client, wanted, LATEST, problems=problems)
        return [Offsets(*tp, starts.get(tp), ends.get(tp)) for tp in wanted]

    found = target.ask(question)
    if at is not None:
        heads: tuple[str, ...] = ("topic", "partition", "offset")
        rows: list[tuple[object, ...]] = [(o.topic, o.partition, o.offset) for o in found]
    else:
        heads = ("topic", "partition", "beginning", "end", "offsets")
        rows = [(o.topic, o.partition, o.beginning, o.end, o.between) for o in found]
    print_result(target.output, found, heads, rows)
    fail_for(list(dict.fromkeys(problems)))


def delete_records(
    target: Target,
    topics: Annotated[
        list[str] | None, Argument(metavar="[TOPIC[:0,1]]...", complete="topic")
    ] = None,
    before: Annotated[
        str | None,
        Option(metavar="PLACE", help="Delete records before: an offset, a time, 1h (ago), or end"),
    ] = None,
    from_file: Annotated[
        str | None,
        Option(
            metavar="FILE", help="Read partitions and offsets as Kafka's JSON; - is standard input"
        ),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    from ottla.admin.operations.input_files import MAX_FILE_BYTES, parse_deletions
    from ottla.admin.operations.typed_values import parse_place
    from ottla.client import record_deletion
    from ottla.client.offsets import log_offsets

    if (from_file is None) == (before is None) or (from_file is None) != bool(topics):
        raise UsageError("name topics and --before, or use --from-file")
    place = usage(parse_place, [before], "--before")[0] if before is not None else None
    if place is not None and (place.before_end is not None or place.timestamp == EARLIEST):
        raise UsageError(f"--before {before}: write an offset, a time, or end")
    chosen = usage(parse_topic, topics or [], "")
    needs_yes(yes or dry_run, "the records would be gone")
    asked = None
    if from_file is not None:
        asked = parse_deletions(*read_input(from_file, MAX_FILE_BYTES))

    async def plan(
        client: "Client",
    ) -> "tuple[dict[TopicPartition, int], dict[TopicPartition, int]]":
        wanted = asked
        if wanted is None:
            assert place is not None
            tps = await chosen_partitions(client, chosen)
            if place.timestamp is not None:
                wanted = await log_offsets(client, tps, place.timestamp)
            else:
                wanted = dict.fromkeys(tps, place.offset or 0)
        else:
            await chosen_partitions(client, [(t, [p]) for t, p in wanted])
        starts = await log_offsets(client, wanted, EARLIEST)
        ends = await log_offsets(client, wanted, LATEST)
        offsets = {
            tp: ends.get(tp, offset) if offset == record_deletion.END else offset
            for tp, offset in wanted.items()
        }
        gone = {tp: max(0, offset - starts.get(tp, offset)) for tp, offset in offsets.items()}
        return offsets, gone

    wanted, gone = target.ask(plan)
    count = sum(gone.values())
    text = f"{plural(count, 'offset')} of {plural(len(wanted), 'partition')}"
    if dry_run:
        found = [
            record_deletion.Deleted(*tp, offset, None) for tp, offset in sorted(wanted.items())
        ]
        say(f"{text} would be deleted; nothing was changed")
    else:
        agreed(yes, f"Delete {text}?", "nothing was deleted")
        found = target.ask(lambda c: record_deletion.delete(c, wanted))
    rows = [(d.topic, d.partition, d.first_offset, d.problem or "") for d in found]
    print_result(target.output, found, ("topic", "partition", "first offset", ""), rows)
    failed = [d for d in found if d.problem]
    if failed:
        refused = plural(len(failed), "partition")
        complain(f"{refused} refused; first {failed[0]}: {failed[0].problem}")
        raise Exit(1)
