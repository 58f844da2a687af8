"""Access rules: listed, added and removed.

Invariants: the rule of the preview, and no other, is added or removed.
"""

from msgspec.structs import asdict
from starlette.responses import Response

from ottla.admin.operations import acl_text
from ottla.client import acls
from ottla.console.asked import Asked, BadRequestError
from ottla.console.changes.preview import Preview, preview
from ottla.console.page import Page, redirect
from ottla.console.rendering import paged
from ottla.console.state import Console
from ottla.model.errors import ErrorCode, OttlaError
from ottla.security.acls import (
    ALLOW,
    CLUSTER,
    CLUSTER_NAME,
    DENY,
    LITERAL,
    OPERATIONS,
    PREFIXED,
    RESOURCE_TYPES,
    Acl,
    AclFilter,
    Entry,
    Pattern,
    parse_principal,
)

PAGE_ROWS = 100
BACK = "/acls"
HEADS = ("principal", "permission", "operation", "host", "resource", "name", "pattern")
KINDS = {word: number for number, word in RESOURCE_TYPES.items()}
PERMISSIONS = {"Allow": ALLOW, "Deny": DENY}
PATTERNS = {"literal": LITERAL, "prefixed": PREFIXED}


async def listed(console: Console, asked: Asked) -> Page:
    """Return a page of the rules."""
    principal = asked.text("principal").strip()
    try:
        found = await acls.find(console.client, AclFilter(principal=principal or None))
    except OttlaError as error:
        if error.code != ErrorCode.SECURITY_DISABLED:
            raise
        return Page("acls.html", {"title": "Access rules", "without": str(error)})
    shown, pages = paged(found, asked.number("page", 1, 1, 1 << 31), PAGE_ROWS)
    values = {
        "rows": [acl_text.described(acl) for acl in shown],
        "heads": HEADS,
        "pages": pages,
        "without": "",
        "principal": principal,
        "kinds": KINDS,
        "permissions": PERMISSIONS,
        "patterns": PATTERNS,
        "operations": OPERATIONS.values(),
    }
    return Page("acls.html", {"title": "Access rules", **values})


async def change(console: Console, asked: Asked) -> Page | Response:
    """Return the preview of a rule that is added or removed; with `do`, do it."""
    deed = asked.choice("deed", ("add", "remove"), "add")
    acl = _acl(asked)
    if asked.has("do"):
        if deed == "add":
            await acls.add(console.client, [acl])
        else:
            await acls.remove(console.client, [acl])
        return redirect(BACK)
    row = asdict(acl_text.described(acl))
    return preview(
        Preview(
            "Add a rule" if deed == "add" else "Remove a rule",
            [f"The command: {acl_text.as_command(acl)}"] if deed == "add" else [],
            HEADS,
            [[row[head] for head in HEADS]],
            "/acls/change",
            [("deed", deed), *row.items()],
            f"{deed.capitalize()} it",
            BACK,
        )
    )


def _acl(asked: Asked) -> Acl:
    """Return the rule that a form describes."""
    kind = KINDS[asked.choice("resource", KINDS, "Topic")]
    name = CLUSTER_NAME if kind == CLUSTER else asked.needed("name")
    pattern = PATTERNS[asked.choice("pattern", PATTERNS, "literal")]
    if pattern == PREFIXED and name in ("*", CLUSTER_NAME):
        raise BadRequestError(
            "pattern: a prefixed rule needs the beginning of a name, not a wildcard or the cluster"
        )
    principal = asked.needed("principal")
    if parse_principal(principal) is None:
        raise BadRequestError(f"principal: {principal[:80]}: use type:name, such as User:alice")
    try:
        operation = acl_text.operation_of(asked.text("operation", "All"))
    except ValueError as error:
        raise BadRequestError(f"operation: {error}") from None
    unknown = acl_text.unknown_to(kind, [operation])
    if unknown:
        raise BadRequestError(f"{RESOURCE_TYPES[kind]} does not support {', '.join(unknown)}")
    permission = PERMISSIONS[asked.choice("permission", PERMISSIONS, "Allow")]
    host = asked.text("host", "*").strip() or "*"
    return Acl(Pattern(kind, name, pattern), Entry(principal, host, operation, permission))
