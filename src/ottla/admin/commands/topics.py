"""`ottla topics`: create, list, describe, alter and delete topics; where their logs begin and end.

Invariants: nothing is deleted without a yes, typed or given as --yes; --dry-run changes nothing; a
list of problems (`describe --under-replicated` and its like) is empty where all is well.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from ottla.admin.connection import Target
from ottla.admin.options import DryRun, Regex, Yes, agreed, fail_for, needs_yes, read_input, usage
from ottla.cli import Argument, Exit, Option, UsageError
from ottla.cli.output import (
    Format,
    complain,
    ids,
    print_changes,
    print_json,
    print_result,
    print_table,
    say,
)
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.printable import plural
from ottla.model.protocol import EARLIEST, LATEST, OF_MAX_TIMESTAMP

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.client.topics import TopicFacts
    from ottla.model.ids import TopicPartition

Settings = Annotated[
    list[str] | None,
    Option("--config", metavar="KEY=VALUE", help="A topic setting; repeatable"),
]
Assignment = Annotated[
    str | None,
    Option(
        "--assignment",
        metavar="0:1,1:2",
        help="Brokers of each (new) partition, the preferred leader first",
        hidden=("--replica-assignment",),
    ),
]
Name = Annotated[str, Argument(metavar="NAME", complete="topic")]
Names = Annotated[list[str] | None, Argument(metavar="[NAME]...", complete="topic")]
IfExists = Annotated[bool, Option("--if-exists", help="Do nothing for topics that do not exist")]
Sizes = Annotated[bool, Option("--sizes", help="Also show bytes on disk; asks every broker")]


def create(
    target: Target,
    name: Annotated[str, Argument(metavar="NAME")],
    partitions: Annotated[int, Option(help="Number of partitions [the brokers' default]")] = -1,
    replication_factor: Annotated[
        int, Option(help="Replicas per partition [the brokers' default]")
    ] = -1,
    assignment: Assignment = None,
    config: Settings = None,
    if_not_exists: Annotated[
        bool, Option("--if-not-exists", help="Do nothing if the topic already exists")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    from ottla.client import topics

    for what, count in (("partitions", partitions), ("replication-factor", replication_factor)):
        if count == 0 or count < -1:
            raise UsageError(f"--{what} {count}: choose 1 or more")
        if assignment is not None and count != -1:
            raise UsageError(f"--assignment sets the count: drop --{what}")
    settings = _settings(config)
    placed = _assignment(assignment)
    result = "valid" if dry_run else "created"
    try:
        target.ask(
            lambda client: topics.create_topic(
                client,
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                settings=settings,
                assignment=placed or (),
                validate_only=dry_run,
            )
        )
    except OttlaError as error:
        if not if_not_exists or error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        result = "exists"
    texts = {
        "valid": f"topic {name} can be created; nothing was changed",
        "created": f"topic {name} created",
        "exists": f"topic {name} exists already; nothing was changed",
    }
    say(texts[result])
    _print_results(target.output, [(name, result)])


def _print_results(output: Format, results: Sequence[tuple[str, str]]) -> None:
    """Print what became of topics, by name."""
    from ottla.admin.results import TopicResult

    print_changes(output, [TopicResult(name, result) for name, result in results])


def _patterns(names: list[str] | None, *, regex: bool) -> "list[re.Pattern[str]] | None":
    """Return names as regular expressions, None where they are names; UsageError for a bad one."""
    return usage(parse_pattern, names or [], "NAME") if regex else None


def _settings(pairs: list[str] | None) -> dict[str, str]:
    from ottla.admin.operations.typed_values import parse_topic_settings

    return usage(parse_topic_settings, [pairs or []], "--config")[0]


def _assignment(text: str | None) -> list[list[int]] | None:
    from ottla.admin.operations.typed_values import parse_assignment

    return None if text is None else usage(parse_assignment, [text], "--assignment")[0]


def list_command(
    target: Target,
    names: Names = None,
    regex: Regex = False,
    overrides: Annotated[
        bool, Option("--overrides", help="Only topics that override settings")
    ] = False,
    exclude_internal: Annotated[
        bool, Option("--exclude-internal", help="Leave out internal topics")
    ] = False,
    sizes: Sizes = False,
) -> None:
    from ottla.client import configs, topics

    patterns = _patterns(names, regex=regex)

    async def question(client: "Client") -> tuple[list[topics.TopicFacts], topics.Sizes]:
        found = await topics.list_topics(client)
        if names:
            there = [t.name for t in found]
            wanted = set(there) & set(names) if patterns is None else matching(there, patterns)
            found = [t for t in found if t.name in wanted]
        if exclude_internal:
            found = [t for t in found if not t.internal]
        if overrides:
            own = await configs.own_of_topics(client, [t.name for t in found])
            found = [t for t in found if own.get(t.name)]
        there = [t.name for t in found]
        return found, await topics.sizes(client, there) if sizes and there else {}

    found, measured = target.ask(question)
    heads: tuple[str, ...] = ("topic", "partitions", "replicas", "under-replicated", "leaderless")
    rows: list[tuple[object, ...]] = [
        (t.name, len(t.partitions), t.replication_factor, t.under_replicated, t.without_leader)
        for t in found
    ]
    if sizes:
        found = [topics.with_sizes(t, measured) for t in found]
        heads = (*heads, "bytes", "bytes of replicas")
        rows = [(*row, t.size, t.size_of_replicas) for row, t in zip(rows, found, strict=True)]
    print_result(target.output, found, heads, rows)


def describe(
    target: Target,
    names: Names = None,
    regex: Regex = False,
    under_replicated: Annotated[
        bool, Option("--under-replicated", help="Only partitions with replicas out of sync")
    ] = False,
    leaderless: Annotated[
        bool, Option("--leaderless", help="Only partitions without a leader")
    ] = False,
    under_min_isr: Annotated[
        bool,
        Option(
            "--under-min-isr",
            help="Only partitions with fewer in-sync replicas than min.insync.replicas",
        ),
    ] = False,
    at_min_isr: Annotated[
        bool,
        Option("--at-min-isr", help="Only partitions with exactly min.insync.replicas in sync"),
    ] = False,
) -> None:
    from ottla.admin.session import of_each
    from ottla.client import topics

    picking = under_replicated or leaderless or under_min_isr or at_min_isr
    if not names and not picking:
        raise UsageError(
            "name a topic, or say what to look for: --under-replicated, --leaderless, "
            "--under-min-isr, --at-min-isr"
        )
    patterns = _patterns(names, regex=regex)
    problems: list[str] = []

    async def question(client: "Client") -> list[topics.TopicFacts]:
        wanted = await _named(client, names or [], patterns)
        each = await of_each(
            client,
            dict.fromkeys(wanted),
            lambda n: topics.describe_topic(client, n, settings=not picking),
            problems,
        )
        found = list(each.values())
        if not picking:
            return found
        return await topics.pick_partitions(
            client,
            found,
            under_replicated=under_replicated,
            leaderless=leaderless,
            under_min_isr=under_min_isr,
            at_min_isr=at_min_isr,
        )

    found = target.ask(question)
    if target.output is Format.json:
        print_json(found)
    else:
        for topic in found:
            _print_topic(topic)
        if picking:
            say(f"{plural(sum(len(t.partitions) for t in found), 'partition')} found")
    fail_for(problems)


async def _named(
    client: "Client", names: Sequence[str], patterns: "Sequence[re.Pattern[str]] | None"
) -> list[str]:
    """Return the topics of these names or patterns; all for none."""
    from ottla.client import topics

    if names and patterns is None:
        return list(dict.fromkeys(names))
    there = [t.name for t in await topics.list_topics(client)]
    if patterns is None:
        return there
    return named_like(there, patterns)


def _print_topic(topic: "TopicFacts") -> None:
    settings = (
        ""
        if topic.settings is None
        else "  settings: "
        + (", ".join(f"{k}={v}" for k, v in topic.settings.items()) or "none of its own")
    )
    rows = [
        (
            p.partition,
            "none" if p.leader is None else p.leader,
            p.leader_epoch,
            ids(p.replicas),
            ids(p.isr),
            "" if len(p.isr) == len(p.replicas) else "under-replicated",
        )
        for p in topic.partitions
    ]
    print_table(
        ("partition", "leader", "epoch", "replicas", "in sync", ""),
        rows,
        title=f"{topic.name}  id {topic.topic_id or '-'}{settings}",
    )


def alter(
    target: Target,
    name: Name,
    partitions: Annotated[
        int | None, Option(help="New number of partitions, never fewer than before", min=1)
    ] = None,
    assignment: Assignment = None,
    config: Settings = None,
    delete_config: Annotated[
        list[str] | None,
        Option(metavar="KEY", help="Reset this setting to the brokers' default; repeatable"),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    from ottla.client import topics

    changed = _settings(config)
    removed = list(dict.fromkeys(delete_config or []))
    placed = _assignment(assignment)
    if partitions is None and not changed and not removed:
        raise UsageError(
            "nothing to change: add --partitions, --config KEY=VALUE or --delete-config KEY"
        )
    if placed is not None and partitions is None:
        raise UsageError("--assignment is of new partitions: add --partitions N")
    both = sorted(set(changed).intersection(removed))
    if both:
        raise UsageError(f"{both[0]} is both set and deleted: choose one")
    target.ask(
        lambda client: topics.alter_topic(
            client,
            name,
            partitions=partitions,
            changed=changed,
            removed=removed,
            assignment=placed,
            validate_only=dry_run,
        )
    )
    say(f"topic {name}: valid; nothing was changed" if dry_run else f"topic {name} altered")
    _print_results(target.output, [(name, "valid" if dry_run else "altered")])


def delete(
    target: Target,
    names: Annotated[list[str], Argument(metavar="NAME...", complete="topic")],
    regex: Regex = False,
    yes: Yes = False,
    if_exists: IfExists = False,
    dry_run: DryRun = False,
) -> None:
    from ottla.client import topics

    patterns = _patterns(names, regex=regex)
    wanted = list(dict.fromkeys(names))
    needs_yes(yes or dry_run, f"{', '.join(wanted)} would be gone with all records")
    missing: list[str] = []
    if patterns is not None:
        wanted = target.ask(lambda c: _named(c, names, patterns))
    else:
        missing = target.ask(lambda c: topics.missing_topics(c, wanted))
    if missing and not if_exists:
        raise OttlaError(
            f"topic {missing[0]} does not exist; `ottla topics list` shows those that do, "
            "--if-exists passes over the others; nothing was deleted"
        )
    there = [name for name in wanted if name not in missing]
    results = [(name, "missing") for name in missing]
    if not there:
        say("nothing to delete")
    elif dry_run:
        say(f"{plural(len(there), 'topic')} would be deleted: {', '.join(there)}")
        results += [(name, "would be deleted") for name in there]
    else:
        agreed(yes, f"Delete {', '.join(there)} with all records?", "nothing was deleted")
        target.ask(
            lambda client: topics.delete_topics(client, there),
            timeout_s=topics.DELETE_TIMEOUT_MS / 1000 + 5,
        )
        say(f"{plural(len(there), 'topic')} deleted")
        results += [(name, "deleted") for name in there]
    _print_results(target.output, results)


def parse_topic(text: str) -> tuple[str, list[int]]:
    """Return the topic and partitions of `TOPIC` or `TOPIC:0,1`; no partitions are all of them."""
    name, colon, indexes = text.partition(":")
    numbers = indexes.split(",") if colon else []
    if not name or not all(n.isascii() and n.isdigit() for n in numbers):
        raise ValueError(f"{text}: write TOPIC or TOPIC:0,1")
    return name, [int(n) for n in dict.fromkeys(numbers)]


async def chosen_partitions(
    client: "Client", chosen: Sequence[tuple[str, list[int]]]
) -> "list[TopicPartition]":
    """Return the partitions that were chosen, each once; OttlaError names one that is not there."""
    from ottla.client import topics
    from ottla.model.ids import TopicPartition

    found: dict[TopicPartition, None] = {}
    for name, indexes in chosen:
        facts = await topics.describe_topic(client, name)
        known = [p.partition for p in facts.partitions]
        for index in indexes:
            if index not in known:
                raise OttlaError(
                    f"topic {name} has no partition {index}: it has {len(known)}, from 0 on"
                )
        found |= dict.fromkeys(TopicPartition(name, index) for index in indexes or known)
    return list(found)


def parse_pattern(text: str) -> "re.Pattern[str]":
    """Return a regular expression for whole names; ValueError says what is wrong with it."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"{text}: {error}") from None


def matching(names: Sequence[str], patterns: Sequence["re.Pattern[str]"]) -> list[str]:
    """Return the names that one of the patterns is of."""
    return [n for n in names if any(p.fullmatch(n) for p in patterns)]


def named_like(topics: Sequence[str], patterns: Sequence["re.Pattern[str]"]) -> list[str]:
    """Return the topics that one of the patterns is of; OttlaError if there is none."""
    found = matching(topics, patterns)
    if not found:
        raise OttlaError(f"no topic has a name like {' or '.join(p.pattern for p in patterns)}")
    return found


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
    from ottla.client.offsets import HIGH_WATERMARK, Deleted, delete_up_to, log_offsets

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
            tp: ends.get(tp, offset) if offset == HIGH_WATERMARK else offset
            for tp, offset in wanted.items()
        }
        gone = {tp: max(0, offset - starts.get(tp, offset)) for tp, offset in offsets.items()}
        return offsets, gone

    wanted, gone = target.ask(plan)
    count = sum(gone.values())
    text = f"{plural(count, 'offset')} of {plural(len(wanted), 'partition')}"
    if dry_run:
        found = [Deleted(*tp, offset, None) for tp, offset in sorted(wanted.items())]
        say(f"{text} would be deleted; nothing was changed")
    else:
        agreed(yes, f"Delete {text}?", "nothing was deleted")
        found = target.ask(lambda c: delete_up_to(c, wanted))
    rows = [(d.topic, d.partition, d.first_offset, d.problem or "") for d in found]
    print_result(target.output, found, ("topic", "partition", "first offset", ""), rows)
    failed = [d for d in found if d.problem]
    if failed:
        refused = plural(len(failed), "partition")
        complain(f"{refused} refused; first {failed[0]}: {failed[0].problem}")
        raise Exit(1)
