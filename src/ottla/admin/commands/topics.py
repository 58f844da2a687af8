"""`ottla topics`: create, list, describe, alter and delete topics.

Invariants: nothing is deleted without a yes, typed or given as --yes; --dry-run changes nothing; a
list of problems (`describe --under-replicated` and its like) is empty where all is well.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from ottla.admin.commands.topic_partitions import matching, named_like, parse_pattern
from ottla.admin.connection import Target
from ottla.admin.options import DryRun, Regex, Yes, agreed, fail_for, needs_yes, usage
from ottla.cli import Argument, Option, UsageError
from ottla.cli.output import (
    Format,
    ids,
    print_changes,
    print_json,
    print_result,
    print_table,
    say,
)
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.printable import plural

if TYPE_CHECKING:
    import re

    from ottla.client.client import Client
    from ottla.client.topics import TopicFacts

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
    settings = "" if topic.settings is None else "  settings: " + (
        ", ".join(f"{k}={v}" for k, v in topic.settings.items()) or "none of its own"
    )  # fmt: skip
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
        target.ask(lambda client: topics.delete_topics(client, there),
            timeout_s=topics.DELETE_TIMEOUT_MS / 1000 + 5,
        )  # fmt: skip
        say(f"{plural(len(there), 'topic')} deleted")
        results += [(name, "deleted") for name in there]
    _print_results(target.output, results)
