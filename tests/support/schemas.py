"""A plain checker of the JSON schemas of `ottla schema`: the part of the language in use."""

from typing import Any

from ottla.cli.schemas import RESULTS, schema_of

SCHEMAS = {command: schema_of(command) for command in RESULTS}
TYPES = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None),
    "array": list, "object": dict,
}  # fmt: skip
KNOWN = {
    "type",
    "items",
    "properties",
    "required",
    "additionalProperties",
    "anyOf",
    "const",
    "enum",
}


def problems(value: Any, schema: dict[str, Any], where: str = "$") -> list[str]:
    """Return what of a value is not as its schema has it."""
    assert set(schema) <= KNOWN, schema
    if "anyOf" in schema:
        found = [problems(value, s, where) for s in schema["anyOf"]]
        return [] if [] in found else [f"{where}: none of {len(found)} forms: {found}"]
    if "const" in schema:
        wanted = schema["const"]
        return [] if value == wanted else [f"{where}: {value!r} is not {wanted!r}"]
    if "enum" in schema:
        known = schema["enum"]
        return [] if value in known else [f"{where}: {value!r} is none of {known!r}"]
    kind = schema.get("type")
    if kind is not None and (
        not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")
    ):
        return [f"{where}: {value!r} is no {kind}"]
    found = []
    if kind == "array":
        for i, item in enumerate(value):
            found += problems(item, schema["items"], f"{where}[{i}]")
    if kind == "object":
        fields = schema.get("properties", {})
        found += [f"{where}: no {name}" for name in schema.get("required", ()) if name not in value]
        extra = schema.get("additionalProperties", {})
        for name, inner in value.items():
            if name in fields:
                found += problems(inner, fields[name], f"{where}.{name}")
            elif extra is False:
                found.append(f"{where}: {name} is not in the schema")
            else:
                found += problems(inner, extra, f"{where}.{name}")
    return found


def partition_name(found: dict[str, Any]) -> str:
    """Return `topic-0` of what a command's JSON says of a partition."""
    return f"{found['topic']}-{found['partition']}"
