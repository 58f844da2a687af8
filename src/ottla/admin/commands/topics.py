"""`ottla topics`: create, list, describe, alter and delete topics.

Who may call: the command line. Invariants: nothing is deleted without a yes, typed or given as
--yes; a list of problems (`describe --under-replicated` and its like) is empty where all is well.
"""

from typing import Annotated, Any

from ottla.admin.arguments import Argument, Option, UsageError
from ottla.admin.options import Bootstrap, Dir, Output, agreed, ask, needs_yes
from ottla.admin.output import Format, plural, print_json, print_table, say
from ottla.model.errors import OttlaError

Settings = Annotated[
    list[str] | None,
    Option("--config", metavar="KEY=VALUE", help="A topic setting; may be repeated"),
]


def create(
    name: str,
    partitions: Annotated[int, Option(help="-1: the brokers' default")] = -1,
    replication_factor: Annotated[int, Option(help="-1: the brokers' default")] = -1,
    config: Settings = None,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
) -> None:
    """Create a topic."""
    from ottla.admin.operations import topics  # noqa: PLC0415 - lazy

    for what, count in (("partitions", partitions), ("replication-factor", replication_factor)):
        if count == 0 or count < -1:
            raise UsageError(f"--{what} {count}: choose 1 or more")
    settings = topics.parse_topic_settings(config or [])
    ask(
        directory,
        bootstrap_server,
        lambda client: topics.create_topic(
            client,
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            settings=settings,
        ),
    )
    say(f"topic {name} created")


def list_command(
    directory: Dir = None, bootstrap_server: Bootstrap = None, output: Output = Format.table
) -> None:
    """List the topics."""
    from ottla.admin.operations import topics  # noqa: PLC0415 - lazy

    found = ask(directory, bootstrap_server, topics.list_topics)
    if output is Format.json:
        print_json(found)
        return
    rows = [
        (t.name, len(t.partitions), t.replication_factor, t.under_replicated, t.without_leader)
        for t in found
    ]
    print_table(("topic", "partitions", "replicas", "under-replicated", "leaderless"), rows)


def describe(
    names: Annotated[list[str] | None, Argument(metavar="[NAME]...")] = None,
    under_replicated: Annotated[
        bool, Option("--under-replicated", help="Only partitions with replicas out of sync")
    ] = False,
    leaderless: Annotated[
        bool, Option("--leaderless", help="Only partitions without a leader")
    ] = False,
    under_min_isr: Annotated[
        bool, Option("--under-min-isr", help="Only partitions that refuse acks=all")
    ] = False,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
    output: Output = Format.table,
) -> None:
    """Show partitions, replicas and settings of topics; or what is wrong with any of them."""
    from ottla.admin.operations import topics  # noqa: PLC0415 - lazy

    picking = under_replicated or leaderless or under_min_isr
    if not names and not picking:
        raise UsageError(
            "name a topic, or say what to look for: --under-replicated, --leaderless, "
            "--under-min-isr"
        )

    async def question(client: Any) -> list[topics.TopicFacts]:
        wanted = names or [t.name for t in await topics.list_topics(client)]
        found = [await topics.describe_topic(client, n, settings=not picking) for n in wanted]
        if not picking:
            return found
        return await topics.pick_partitions(
            client,
            found,
            under_replicated=under_replicated,
            leaderless=leaderless,
            under_min_isr=under_min_isr,
        )

    found = ask(directory, bootstrap_server, question)
    if output is Format.json:
        print_json(found[0] if len(names or ()) == 1 and not picking else found)
        return
    for topic in found:
        _print_topic(topic)
    if picking:
        say(f"{plural(sum(len(t.partitions) for t in found), 'partition')} found")


def _print_topic(topic: Any) -> None:
    settings = "" if topic.settings is None else "  settings: " + (
        ", ".join(f"{k}={v}" for k, v in topic.settings.items()) or "none of its own"
    )  # fmt: skip
    rows = [
        (
            p.partition,
            p.leader if p.leader >= 0 else "none",
            p.leader_epoch,
            ",".join(map(str, p.replicas)),
            ",".join(map(str, p.isr)),
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
    name: str,
    partitions: Annotated[
        int | None, Option(help="Grow to so many; topics never shrink", min=1)
    ] = None,
    config: Settings = None,
    delete_config: Annotated[
        list[str] | None,
        Option(metavar="KEY", help="Back to the brokers' default; may be repeated"),
    ] = None,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
) -> None:
    """Give a topic more partitions or other settings."""
    from ottla.admin.operations import topics  # noqa: PLC0415 - lazy

    changed = topics.parse_topic_settings(config or [])
    removed = list(dict.fromkeys(delete_config or []))
    if partitions is None and not changed and not removed:
        raise UsageError(
            "nothing to change: add --partitions, --config KEY=VALUE or --delete-config KEY"
        )
    both = sorted(set(changed).intersection(removed))
    if both:
        raise UsageError(f"{both[0]} is both set and deleted: choose one")
    ask(
        directory,
        bootstrap_server,
        lambda client: topics.alter_topic(
            client, name, partitions=partitions, changed=changed, removed=removed
        ),
    )
    say(f"topic {name} altered")


def delete(
    names: Annotated[list[str], Argument(metavar="NAME...")],
    yes: Annotated[bool, Option("--yes", help="Do not ask")] = False,
    if_exists: Annotated[
        bool, Option("--if-exists", help="Topics that do not exist are fine")
    ] = False,
    directory: Dir = None,
    bootstrap_server: Bootstrap = None,
) -> None:
    """Delete topics and their records. Asks, unless --yes is given."""
    from ottla.admin.operations import topics  # noqa: PLC0415 - lazy

    wanted = list(dict.fromkeys(names))
    needs_yes(yes, f"{', '.join(wanted)} would be gone with all records")
    missing = ask(directory, bootstrap_server, lambda client: topics.missing_topics(client, wanted))
    if missing and not if_exists:
        raise OttlaError(
            f"topic {missing[0]} does not exist; `ottla topics list` shows those that do, "
            "--if-exists passes over the others; nothing was deleted"
        )
    there = [name for name in wanted if name not in missing]
    if not there:
        say("nothing to delete")
        return
    agreed(yes, f"Delete {', '.join(there)} with all records?", "nothing was deleted")
    ask(
        directory, bootstrap_server, lambda client: topics.delete_topics(client, there),
        timeout_s=topics.DELETE_TIMEOUT_MS / 1000 + 5,
    )  # fmt: skip
    say(f"{plural(len(there), 'topic')} deleted")
