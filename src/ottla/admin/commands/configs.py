"""`ottla configs`: settings of topics and brokers and quotas of clients, as a person asks for them.

Invariants: all changes of one command are made or none; nothing is changed by --dry-run; a refusal
names the key, the reason and the way out.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from ottla.admin.connection import Target
from ottla.cli import Argument, Option, UsageError
from ottla.cli.output import print_result, say
from ottla.model.errors import OttlaError
from ottla.model.printable import did_you_mean

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.client.configs import Change, Setting

HIDDEN = "(hidden)"
MOST_FILE_BYTES = 1_048_576


class Whose(NamedTuple):
    """Whose settings: of a topic or broker (`kind`, `name`), or quotas of an `entity`."""

    kind: int | None
    name: str
    entity: dict[str, str | None]

    @property
    def named(self) -> dict[str, str | None]:
        """The entity as JSON names it; None as a name stands for all that are not named."""
        from ottla.client import configs

        if self.kind is None:
            return self.entity
        return {"topic" if self.kind == configs.TOPIC else "broker": self.name or None}

    def __str__(self) -> str:
        from ottla.client import client_quotas, configs

        if self.kind is not None:
            return configs.shown(self.kind, self.name)
        return client_quotas.shown(self.entity)


@dataclass(kw_only=True)
class Entity:
    """The options that say whose settings or quotas are meant."""

    topic: Annotated[
        str | None,
        Option("--topic", "-t", metavar="NAME", help="Settings of a topic", complete="topic"),
    ] = None
    broker: Annotated[
        int | None, Option(metavar="ID", help="Settings of a broker", complete="broker")
    ] = None
    broker_defaults: Annotated[
        bool, Option("--broker-defaults", help="Settings of all brokers: their dynamic defaults")
    ] = False
    user: Annotated[str | None, Option(metavar="NAME", help="Quotas of a user")] = None
    user_defaults: Annotated[
        bool, Option("--user-defaults", help="Quotas of all users without their own")
    ] = False
    client_id: Annotated[
        str | None,
        Option(metavar="NAME", help="Quotas of a client id; with --user, of both together"),
    ] = None
    client_defaults: Annotated[
        bool, Option("--client-defaults", help="Quotas of all client ids without their own")
    ] = False
    ip: Annotated[str | None, Option(metavar="ADDRESS", help="Quotas of an address")] = None
    ip_defaults: Annotated[
        bool, Option("--ip-defaults", help="Quotas of all addresses without their own")
    ] = False

    def whose(self) -> Whose | None:
        """Return whose settings are meant, None where no entity is named."""
        from ottla.client import configs

        topic, broker = self.topic, self.broker
        if topic == "" or (broker is not None and broker < 0):
            raise UsageError("--topic takes a name, --broker a number from 0 on")
        parts = (
            ("user", self.user, self.user_defaults),
            ("client-id", self.client_id, self.client_defaults),
            ("ip", self.ip, self.ip_defaults),
        )
        for part, name, default in parts:
            others = f"--{part.removesuffix('-id')}-defaults"
            if name is not None and default:
                raise UsageError(f"--{part} is one, {others} all others: choose")
            if name == "":
                raise UsageError(f"--{part} is empty; all that are not named are {others}")
        entity = {part: name for part, name, default in parts if name is not None or default}
        if "ip" in entity and len(entity) > 1:
            raise UsageError("an address stands alone: no user and no client id beside --ip")
        named = [
            Whose(kind, name, {})
            for kind, name, there in (
                (configs.TOPIC, topic or "", topic is not None),
                (configs.BROKER, str(broker), broker is not None),
                (configs.BROKER, configs.ALL_BROKERS, self.broker_defaults),
            )
            if there
        ]
        if entity:
            named.append(Whose(None, "", entity))
        if len(named) > 1:
            raise UsageError(f"{named[0]} and {named[1]}: one command is for one of them")
        return named[0] if named else None


# -- describe -----------------------------------------------------------------------------------


def describe(
    entity: Entity,
    target: Target,
    keys: Annotated[
        list[str] | None,
        Argument(metavar="[KEY]...", help="Only these settings, also if they have their default"),
    ] = None,
    quotas: Annotated[bool, Option("--quotas", help="All quotas")] = False,
    every: Annotated[bool, Option("--all", help="Also show Kafka's defaults")] = False,
) -> None:
    whose = entity.whose()
    if quotas == (whose is not None):
        raise UsageError(
            "say whose settings: --topic, --broker, --broker-defaults, --user, --client-id, --ip "
            "or --quotas"
        )
    wanted = list(dict.fromkeys(keys or ()))
    if whose is None or whose.kind is None:
        _describe_quotas(target, None if whose is None else whose.entity, wanted)
        return
    from ottla.client import configs

    kind, name = whose.kind, whose.name
    found = target.ask(lambda c: configs.settings(c, kind, name))
    if wanted:
        known = {s.key: s for s in found}
        for key in wanted:
            if key not in known:
                raise OttlaError(f"{whose} has no setting {key}{did_you_mean(key, known)}")
        found = [known[key] for key in wanted]
    elif not every:
        found = [s for s in found if s.source != configs.SOURCES[5]]
    rows = [(s.key, _value(s), s.source, s.type, _notes(s)) for s in found]
    print_result(
        target.output,
        configs.Described(whose.named, found, []),
        ("key", "value", "source", "type", ""),
        rows,
        title=str(whose),
    )


def _value(setting: "Setting") -> str | None:
    return HIDDEN if setting.sensitive and setting.value is None else setting.value


def _notes(setting: "Setting") -> str:
    notes = [("read-only", setting.read_only), ("sensitive", setting.sensitive)]
    return ", ".join(note for note, holds in notes if holds)


def _describe_quotas(
    target: Target, entity: dict[str, str | None] | None, keys: Sequence[str]
) -> None:
    from ottla.client import client_quotas, configs

    found = target.ask(lambda c: client_quotas.describe(c, entity))
    rows = [
        (*(_part(quota.entity, part) for part in client_quotas.PARTS), key, _number(value))
        for quota in found
        for key, value in quota.values.items()
        if not keys or key in keys
    ]
    print_result(
        target.output,
        configs.Described(entity, [], found),
        (*client_quotas.PARTS, "quota", "per second"),
        rows,
    )


def _part(entity: dict[str, str | None], part: str) -> str | None:
    if part not in entity:
        return None
    return "(default)" if entity[part] is None else entity[part]


def _number(value: float) -> float | int:
    return int(value) if value.is_integer() else value


# -- alter --------------------------------------------------------------------------------------

VERBS = ("set", "delete", "append", "subtract")
"""By the operation's number in IncrementalAlterConfigs."""

Pairs = list[str] | None


def alter(
    entity: Entity,
    target: Target,
    set_: Annotated[
        Pairs,
        Option(
            "--set", metavar="KEY=VALUE", help="Set it; repeatable, as are all options with KEY"
        ),
    ] = None,
    set_file: Annotated[
        Path | None,
        Option(
            "--set-file",
            metavar="FILE",
            help="Read settings from a file, such as passwords; - is stdin",
        ),
    ] = None,
    append: Annotated[
        Pairs, Option(metavar="KEY=VALUE", help="Add to a list, such as cleanup.policy=compact")
    ] = None,
    subtract: Annotated[Pairs, Option(metavar="KEY=VALUE", help="Remove from a list")] = None,
    delete: Annotated[Pairs, Option(metavar="KEY", help="Reset it to its default")] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Have brokers check the change, without making it")
    ] = False,
) -> None:
    whose = entity.whose()
    if whose is None:
        raise UsageError(
            "say whose settings: --topic, --broker, --broker-defaults, --user, --client-id or --ip"
        )
    from ottla.client import configs

    changes = _changes([*(set_ or ()), *_of_file(set_file)], delete, append, subtract)

    async def question(client: "Client") -> Mapping[str, str | float | None]:
        if whose.kind is None:
            return await _alter_quotas(client, whose, changes, dry_run=dry_run)
        return await _alter_settings(client, whose, changes, dry_run=dry_run)

    before = target.ask(question)
    changed = [
        configs.Changed(
            c.key, was := before.get(c.key), VERBS[c.operation], _printed(whose, c, was)
        )
        for c in changes
    ]
    print_result(
        target.output,
        configs.Altered(whose.named, not dry_run, changed),
        ("key", "before", "", "value"),
        [(c.key, c.before, c.operation, c.value) for c in changed],
        title=str(whose),
    )
    say("valid; nothing was changed: drop --dry-run" if dry_run else f"{whose} altered")


def _printed(whose: Whose, change: "Change", before: object) -> str | None:
    """Return a change's value, but not a password. `before`: the value that was in force."""
    from ottla.client import configs
    from ottla.model.config import base_name
    from ottla.model.config_keys import broker_keys

    value = change.value
    key = broker_keys().get(base_name(change.key)) if whose.kind == configs.BROKER else None
    secret = before == HIDDEN or (key is not None and key.type == "password")
    return HIDDEN if secret and value is not None else value


def _of_file(file: Path | None) -> list[str]:
    """Return what --set-file names, as --set takes it: arguments of a process are no secret."""
    if file is None:
        return []
    from ottla.model.properties import load_settings

    if str(file) == "-":
        data = sys.stdin.buffer.read(MOST_FILE_BYTES + 1)
    else:
        with file.open("rb") as opened:
            data = opened.read(MOST_FILE_BYTES + 1)
    if len(data) > MOST_FILE_BYTES:
        raise OttlaError(f"--set-file {file}: more than {MOST_FILE_BYTES:,} bytes")
    return [f"{key}={value}" for key, value in load_settings(data, file).items()]


def _changes(set_: Pairs, delete: Pairs, append: Pairs, subtract: Pairs) -> "list[Change]":
    """Return what was typed as changes, each key once."""
    from ottla.client.configs import DELETE, Change

    changes = []
    for operation, texts in enumerate((set_, delete, append, subtract)):
        for text in texts or ():
            key, equals, value = text.partition("=")
            if not key or (operation != DELETE) != bool(equals):
                form = "KEY" if operation == DELETE else "KEY=VALUE"
                raise UsageError(f"--{VERBS[operation]} {text}: write {form}")
            changes.append(Change(operation, key, value if equals else None))
    if not changes:
        raise UsageError(
            "nothing to change: add --set, --set-file, --append, --subtract or --delete"
        )
    for key in (c.key for c in changes):
        if sum(c.key == key for c in changes) > 1:
            raise UsageError(f"{key} is named more than once: say one thing of it")
    return changes


def _check_deleted(whose: Whose, changes: "Sequence[Change]", there: Mapping[str, object]) -> None:
    """Refuse to delete what is not set: a slip of the keyboard, for Kafka's tool too."""
    from ottla.client.configs import DELETE

    for change in changes:
        if change.operation == DELETE and change.key not in there:
            raise OttlaError(
                f"{change.key} is not set on {whose}{did_you_mean(change.key, there)}; nothing "
                f"was changed; what is set on it: {', '.join(sorted(there)) or 'nothing'}"
            )


async def _alter_settings(
    client: "Client", whose: Whose, changes: "Sequence[Change]", *, dry_run: bool
) -> dict[str, str | None]:
    """Change a topic or broker; return what was in force before."""
    from ottla.client import configs

    assert whose.kind is not None
    known = {s.key: s for s in await configs.settings(client, whose.kind, whose.name)}
    own = configs.own_source(whose.kind, whose.name)
    _check_deleted(whose, changes, {key: s for key, s in known.items() if s.source == own})
    try:
        await configs.apply(client, whose.kind, whose.name, changes, validate_only=dry_run)
    except OttlaError as error:
        hints = [h for c in changes if (h := _hint(c, known))]
        raise type(error)("; ".join([str(error), *hints])) from error
    return {key: _value(s) for key, s in known.items()}


def _hint(change: "Change", known: "Mapping[str, Setting]") -> str | None:
    """Return the way out for a change that may be the reason of a refusal."""
    from ottla.client.configs import APPEND, SUBTRACT

    key, setting = change.key, known.get(change.key)
    if setting is None:
        near = did_you_mean(key, known)
        return f"there is no {key}{near}" if near else None
    if setting.read_only:
        return f"{key} is read-only: change it in server.properties and restart the broker"
    if change.operation in (APPEND, SUBTRACT) and setting.type not in ("list", "unknown"):
        return f"{key} is not a list: use --set"
    return None if setting.type in ("string", "unknown") else f"{key} is of type {setting.type}"


async def _alter_quotas(
    client: "Client", whose: Whose, changes: "Sequence[Change]", *, dry_run: bool
) -> dict[str, float]:
    """Change quotas; return what they were."""
    from ottla.client import client_quotas
    from ottla.client.configs import DELETE, SET

    wanted: dict[str, float] = {}
    for change in changes:
        if change.operation not in (SET, DELETE):
            raise OttlaError(f"{change.key}: a quota is a number, no list: use --set or --delete")
        if change.operation == SET:
            wanted[change.key] = _quota(change.key, change.value)
    found = await client_quotas.describe(client, whose.entity)
    there = found[0].values if found else {}
    _check_deleted(whose, changes, there)
    removed = [c.key for c in changes if c.operation == DELETE]
    try:
        await client_quotas.alter(client, whose.entity, wanted, removed, validate_only=dry_run)
    except OttlaError as error:
        keys = client_quotas.known_keys(whose.entity)
        unknown = [key for key in wanted if key not in keys]
        way_out = f"; the quotas of {whose} are {', '.join(keys)}" if unknown else ""
        raise type(error)(f"{error}{way_out}") from error
    return {key: _number(value) for key, value in there.items()}


def _quota(key: str, text: str | None) -> float:
    try:
        return float(text or "")
    except ValueError:
        raise OttlaError(f"{key}={text}: a quota is a number; nothing was changed") from None
