"""`ottla acls`: who may do what, listed, changed, and explained.

Invariants: what is removed is shown and asked about first; nothing is changed by --dry-run; `check`
decides by the same rules as a broker.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from ottla.admin.connection import Target
from ottla.admin.options import DryRun, Yes, agreed, needs_yes, usage
from ottla.cli import Argument, Option, UsageError
from ottla.cli.output import Format, print_result, say
from ottla.model.printable import plural

if TYPE_CHECKING:
    from ottla.security.acls import Acl, AclFilter
    from ottla.security.principals import Principal as Who

Prefixed = Annotated[
    bool, Option("--prefixed", help="Match all names that begin with the given one")
]
Operations = Annotated[
    list[str] | None,
    Option(
        "--operation", metavar="NAME", help="Operation: Read, Write, Describe, …; repeatable [All]"
    ),
]
Host = Annotated[
    str, Option("--host", metavar="ADDRESS", help="Only connections from this address [any]")
]
Principal = Annotated[str, Argument(metavar="PRINCIPAL", help="User:NAME, or User:* for everyone")]

HEADS = ("principal", "permission", "operation", "host", "resource", "name", "pattern")


@dataclass(kw_only=True)
class Named:
    """The options that name a resource."""

    topic: Annotated[
        str | None,
        Option("--topic", "-t", metavar="NAME", complete="topic", help="Name of a topic"),
    ] = None
    group: Annotated[str | None, Option(metavar="ID", complete="group", help="Name of a group")] = (
        None
    )
    transactional_id: Annotated[
        str | None, Option(metavar="ID", complete="transaction", help="A transactional id")
    ] = None
    delegation_token: Annotated[str | None, Option(metavar="ID", help="A delegation token")] = None
    user: Annotated[str | None, Option(metavar="PRINCIPAL", help="Owner of delegation tokens")] = (
        None
    )
    cluster: Annotated[bool, Option("--cluster", help="The cluster itself")] = False

    @property
    def names(self) -> list[str | None]:
        return [self.topic, self.group, self.transactional_id, self.delegation_token, self.user]

    def there(self) -> bool:
        return self.cluster or any(name is not None for name in self.names)

    def one(self) -> tuple[int, str]:
        """Return type and name of the resource; UsageError unless one was named."""
        from ottla.admin.operations.acl_text import resource_of
        from ottla.security import acls

        kinds = (acls.TOPIC, acls.GROUP, acls.TRANSACTIONAL_ID, acls.DELEGATION_TOKEN, acls.USER)
        try:
            return resource_of(list(zip(kinds, self.names, strict=True)), cluster=self.cluster)
        except ValueError as error:
            raise UsageError(str(error)) from None

    def narrowed(self, wanted: "AclFilter", pattern_type: int) -> "AclFilter":
        """Return a filter for what was named; as it is, if nothing was."""
        if not self.there():
            return wanted
        kind, name = self.one()
        return wanted._replace(resource_type=kind, name=name, pattern_type=pattern_type)


def _principal(text: str) -> "Who":
    from ottla.security.acls import parse_principal

    found = parse_principal(text)
    if found is None:
        raise UsageError(f"{text}: a principal is written type:name, as in User:alice")
    return found


def _print(output: Format, acls: "Sequence[Acl]", *, executed: bool | None = None) -> None:
    """Print rules; `executed`: whether they have been changed."""
    from ottla.admin.operations.acl_text import AclChanges, described

    found = [described(acl) for acl in acls]
    shown = found if executed is None else AclChanges(executed, found)
    rows = [
        (f.principal, f.permission, f.operation, f.host, f.resource, f.name, f.pattern)
        for f in found
    ]
    print_result(output, shown, HEADS, rows)


# -- list ---------------------------------------------------------------------------------------


def list_command(
    named: Named,
    target: Target,
    principal: Annotated[
        str | None, Option("--principal", metavar="PRINCIPAL", help="Only rules of this principal")
    ] = None,
    exact: Annotated[
        bool, Option("--exact", help="Leave out rules that match the name by a prefix or *")
    ] = False,
) -> None:
    from ottla.client import acls
    from ottla.security.acls import ANY, MATCH, AclFilter

    wanted = named.narrowed(AclFilter(principal=principal), ANY if exact else MATCH)
    found = target.ask(lambda c: acls.find(c, wanted))
    _print(target.output, found)


# -- add ----------------------------------------------------------------------------------------


def add(
    named: Named,
    target: Target,
    principal: Principal,
    operation: Operations = None,
    prefixed: Prefixed = False,
    host: Host = "*",
    deny: Annotated[
        bool, Option("--deny", help="Deny the operations; this overrides all that allow them")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    from ottla.admin.operations import acl_text
    from ottla.client import acls
    from ottla.security.acls import (
        ALLOW,
        DENY,
        LITERAL,
        PREFIXED,
        RESOURCE_TYPES,
        Acl,
        Entry,
        Pattern,
    )

    kind, name = named.one()
    if prefixed and (named.cluster or name == "*"):
        raise UsageError("--prefixed goes with the beginning of a name")
    operations = usage(acl_text.operation_of, operation or ["All"], "--operation")
    unknown = acl_text.unknown_to(kind, operations)
    if unknown:
        raise UsageError(f"{RESOURCE_TYPES[kind]} knows no {', '.join(unknown)}")
    pattern = Pattern(kind, name, PREFIXED if prefixed else LITERAL)
    who = str(_principal(principal))
    rules = [Acl(pattern, Entry(who, host, o, DENY if deny else ALLOW)) for o in operations]
    if not dry_run:
        target.ask(lambda c: acls.add(c, rules))
    _print(target.output, rules, executed=not dry_run)
    say("nothing was changed; drop --dry-run to add them" if dry_run else f"{len(rules)} added")


# -- remove -------------------------------------------------------------------------------------


def remove(
    named: Named,
    target: Target,
    principal: Annotated[
        str | None, Option("--principal", metavar="PRINCIPAL", help="Only rules of this principal")
    ] = None,
    operation: Operations = None,
    prefixed: Prefixed = False,
    host: Annotated[
        str | None, Option("--host", metavar="ADDRESS", help="Only rules for this host")
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    from ottla.admin.operations import acl_text
    from ottla.client import acls
    from ottla.security.acls import LITERAL, PREFIXED, AclFilter

    wanted = named.narrowed(
        AclFilter(principal=principal, host=host), PREFIXED if prefixed else LITERAL
    )
    if principal is None and not named.there():
        raise UsageError("name what to remove: a resource, --principal or both")
    operations = usage(acl_text.operation_of, operation or [], "--operation")
    found = [
        acl
        for acl in target.ask(lambda c: acls.find(c, wanted))
        if not operations or acl.entry.operation in operations
    ]
    if not found:
        say("no rule is like that: nothing was changed")
    elif not dry_run:
        needs_yes(yes, f"this removes {plural(len(found), 'rule')}")
        for acl in found:
            say(f"to be removed: {acl}")
        agreed(yes, f"Remove {plural(len(found), 'rule')}?", "nothing was removed")
        target.ask(lambda c: acls.remove(c, found))
    _print(target.output, found, executed=bool(found) and not dry_run)


# -- check --------------------------------------------------------------------------------------


def check(
    named: Named,
    target: Target,
    principal: Principal,
    operation: Annotated[str, Argument(metavar="OPERATION", help="Read, Write, Describe, …")],
    host: Annotated[
        str, Option("--host", metavar="ADDRESS", help="Address of the connection")
    ] = "127.0.0.1",
    super_users: Annotated[
        str,
        Option(
            "--super-users",
            metavar="LIST",
            help="The brokers' super.users, which brokers do not report",
        ),
    ] = "",
    allow_if_no_acl: Annotated[
        bool,
        Option("--allow-if-no-acl", help="Assume allow.everyone.if.no.acl.found=true"),
    ] = False,
) -> None:
    from ottla.admin.operations import acl_text
    from ottla.client import acls
    from ottla.security.acls import OPERATIONS, AclFilter, Entry, Pattern, allowing, nearest
    from ottla.security.authorizer import AclAuthorizer

    kind, name = named.one()
    (wanted,) = usage(acl_text.operation_of, [operation], "OPERATION")
    who = _principal(principal)
    found = target.ask(lambda c: acls.find(c, AclFilter(resource_type=kind)))
    supers = [_principal(text.strip()) for text in super_users.split(";") if text.strip()]
    authorizer = AclAuthorizer(supers, allow_if_no_acl=allow_if_no_acl)
    by_pattern: dict[Pattern, list[Entry]] = {}
    for acl in found:
        by_pattern.setdefault(acl.pattern, []).append(acl.entry)
    authorizer.replace(by_pattern)
    decision = authorizer.decide(who, host, wanted, kind, name)
    near = None if decision.allowed else nearest(found, who, host, wanted, kind, name)
    fix = None
    if not decision.allowed and decision.acl is None:
        fix = acl_text.as_command(allowing(who, host, wanted, kind, name))
    question = f"{who} {OPERATIONS[wanted]} {Pattern(kind, name)} from host {host}"
    answer = acl_text.AclAnswer(
        question,
        decision.allowed,
        decision.reason,
        None if decision.acl is None else acl_text.described(decision.acl),
        None if near is None else acl_text.described(near.acl),
        [] if near is None else list(near.differs),
        fix,
    )
    rows = [("allowed" if decision.allowed else "denied", decision.reason)]
    if decision.acl is not None:
        rows.append(("rule", str(decision.acl)))
    if near is not None:
        rows.append(("nearest rule", f"{near.acl} (another {', '.join(near.differs)})"))
    if fix is not None:
        rows.append(("to allow it", fix))
    print_result(target.output, answer, ("", question), rows)
