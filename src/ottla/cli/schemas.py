"""What each command prints as JSON: its struct, and the JSON schema that is made of it.

A command has one result, whatever its options; a list is always a list; a field is always there,
null where there is nothing to tell, unless the schema does not require it.
"""

from pkgutil import resolve_name
from types import GenericAlias
from typing import Annotated, Any

import msgspec

from ottla.cli.declaring import Argument, UsageError
from ottla.cli.output import print_json

Schema = dict[str, Any]

_OPERATIONS = "ottla.admin.operations"
_CLIENT = "ottla.client"
_RESULTS = "ottla.admin.results"
_EVENTS = "kill shutdown rolling-restart drain add-brokers reassign unclean config"

RESULTS = {
    "up": f"{_RESULTS}:Up",
    "down": f"{_RESULTS}:Down",
    "status": f"{_OPERATIONS}.status:JudgedStatus",
    **{
        f"broker {verb}": f"{_RESULTS}:BrokerResult[]"
        for verb in ("start", "restart", "kill", "pause", "resume", "cut", "heal")
    },
    "broker stop": f"{_RESULTS}:BrokerResult[] | {_RESULTS}:ShutDown",
    "broker drain": f"{_RESULTS}:Drained | ottla.placement.plans:PlanFile",
    "broker remove": f"{_RESULTS}:BrokerResult[]",
    "topics create": f"{_RESULTS}:TopicResult[]",
    "topics list": f"{_CLIENT}.topics:TopicFacts[]",
    "topics describe": f"{_CLIENT}.topics:TopicFacts[]",
    "topics alter": f"{_RESULTS}:TopicResult[]",
    "topics delete": f"{_RESULTS}:TopicResult[]",
    "topics offsets": f"{_RESULTS}:Offsets[]",
    "topics delete-records": f"{_CLIENT}.offsets:Deleted[]",
    "produce": f"{_RESULTS}:Produced[]",
    "consume": f"{_OPERATIONS}.record_json:RecordLine | {_RESULTS}:Counted[]",
    "configs describe": f"{_CLIENT}.configs:Described",
    "configs alter": f"{_CLIENT}.configs:Altered",
    "acls list": f"{_OPERATIONS}.acl_text:AclFacts[]",
    "acls add": f"{_OPERATIONS}.acl_text:AclChanges",
    "acls remove": f"{_OPERATIONS}.acl_text:AclChanges",
    "acls check": f"{_OPERATIONS}.acl_text:AclAnswer",
    "groups list": f"{_CLIENT}.groups:GroupFacts[]",
    "groups describe": f"{_CLIENT}.groups:GroupDescription[]",
    "groups lag": f"{_CLIENT}.groups:GroupLag[]",
    "groups delete": f"{_RESULTS}:GroupResult[]",
    "groups delete-offsets": f"{_RESULTS}:OffsetResult[]",
    "groups reset-offsets": f"{_CLIENT}.group_resets:Reset",
    "groups watch": f"{_CLIENT}.groups:RatedLag[]",
    "cluster snapshot": f"{_CLIENT}.cluster_state:ClusterState",
    "cluster diff": f"{_CLIENT}.cluster_state:Difference[]",
    "cluster apply": f"{_CLIENT}.cluster_state:Step[]",
    "znode ls": f"{_OPERATIONS}.znode_reading:Znode[]",
    "znode get": f"{_OPERATIONS}.znode_reading:Znode",
    "txn list": f"{_CLIENT}.transactions:TransactionRow[]",
    "txn describe": f"{_CLIENT}.transactions:TransactionFacts[]",
    "txn producers": f"{_CLIENT}.transactions:ProducerFacts[]",
    "txn hanging": f"{_CLIENT}.transactions:Hanging[]",
    "txn abort": f"{_RESULTS}:Aborted[]",
    "users list": f"{_CLIENT}.scram_users:User[]",
    "users add": f"{_RESULTS}:UserResult[]",
    "users remove": f"{_RESULTS}:UserResult[]",
    "users rotate": f"{_RESULTS}:Rotated[]",
    "reassign plan": "ottla.placement.plans:PlanFile",
    "reassign execute": "ottla.placement.plans:PlanFile",
    "reassign verify": f"{_RESULTS}:Moving[]",
    "reassign cancel": f"{_RESULTS}:Cancelled[]",
    "reassign list": f"{_CLIENT}.reassignments:Listed[]",
    "reassign throttles": f"{_CLIENT}.left_over_throttles:Forgotten[]",
    "top": "ottla.admin.top.looking:LookResult",
    "verify-replicas": f"{_CLIENT}.replica_verification:ComparedPartition[] | "
    "ottla.admin.replica_files.comparing:ComparedFiles",
    "doctor": "ottla.admin.diagnosis.facts:Diagnosis",
    "elect": f"{_RESULTS}:Elected[]",
    "log-dirs": f"{_CLIENT}.log_dirs:LogDirs",
    "dump-log": "ottla.admin.log_files.entries:Entry[]",
    "certs init": f"{_RESULTS}:FileResult[]",
    "certs issue": f"{_RESULTS}:FileResult[]",
    "certs rotate": f"{_RESULTS}:FileResult[]",
    "certs list": f"{_RESULTS}:Certificate[]",
    "profile list": f"{_RESULTS}:Profile[]",
    "profile show": f"{_RESULTS}:Chosen",
    "profile set": f"{_RESULTS}:ProfileResult[]",
    "profile use": f"{_RESULTS}:ProfileResult[]",
    "profile remove": f"{_RESULTS}:ProfileResult[]",
    **{f"whatif {event}": "ottla.explain.whatif:JudgedReport" for event in _EVENTS.split()},
    "why": "ottla.explain.results:History",
    "history timeline": "ottla.explain.results:DrawnTimeline",
    "history replay": "ottla.explain.results:Cluster | ottla.explain.results:Differences",
    "sim check": "ottla.sim.scenarios.results:Checked",
}
"""By the words of the command: `module:struct`, with `[]` behind it for a list.

`consume` prints such an object a line, `groups watch` such a list.
"""


def schema(words: Annotated[list[str], Argument(metavar="COMMAND...")]) -> None:
    """Print the JSON schema of what a command prints."""
    name = " ".join(words)
    if name not in RESULTS:
        raise UsageError(f"{name} prints no JSON; there are {', '.join(RESULTS)}")
    print_json(schema_of(name))


def schema_of(command: str) -> Schema:
    """Return the JSON schema of what a command prints; KeyError if it prints no JSON."""
    return described(RESULTS[command])


def described(targets: str) -> Schema:
    """Return the JSON schema of what is one of these: `module:Struct`, joined by " | "."""
    types = [_type(target) for target in targets.split(" | ")]
    schemas, parts = msgspec.json.schema_components(types, ref_template="{name}")
    found = [_plain(schema, parts) for schema in schemas]
    return found[0] if len(found) == 1 else {"anyOf": found}


def _type(target: str) -> Any:
    found = resolve_name(target.removesuffix("[]"))
    return GenericAlias(list, (found,)) if target.endswith("[]") else found


def _plain(schema: Schema, parts: dict[str, Schema]) -> Schema:
    """Return a schema with its parts in place, without what tells only of Python."""
    if "$ref" in schema:
        return _plain(parts[schema["$ref"]], parts)
    found: Schema = {key: schema[key] for key in ("type", "const", "enum") if key in schema}
    if "anyOf" in schema:
        found["anyOf"] = [_plain(form, parts) for form in schema["anyOf"]]
    if "items" in schema:
        found["items"] = _plain(schema["items"], parts)
    if "properties" in schema:
        fields = {n: _plain(f, parts) for n, f in schema["properties"].items()}
        required = schema.get("required", ())
        # What has a default is printed all the same, unless it is UNSET, which schemas do not name.
        found["required"] = [
            n for n in fields if n in required or "default" in schema["properties"][n]
        ]
        found |= {"properties": fields, "additionalProperties": False}
    elif "additionalProperties" in schema:
        found["additionalProperties"] = _plain(schema["additionalProperties"], parts)
    return found
