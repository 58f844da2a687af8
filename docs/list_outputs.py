"""Writes docs/OUTPUT.md: how commands print, their exit codes, and the schema of each output.

PYTHONPATH=src python docs/list_outputs.py
"""

from pathlib import Path
from typing import Any

from ottla.cli.manual import ENVIRONMENT, EXIT_CODES
from ottla.cli.schemas import RESULTS as COMMANDS
from ottla.cli.schemas import schema_of
from ottla.pipelines.result_schemas import RESULTS

PAGE = Path(__file__).parent / "OUTPUT.md"
INTRODUCTION = """\
# Output, exit codes, environment

Written by `python docs/list_outputs.py`; do not edit.

`--output` is `table` (aligned and as wide as the terminal, tab-separated in a pipe), `json`, or `tsv` (tab-separated everywhere; `# ` before titles).
Data goes to standard output, all else to standard error. Where one broker, group or other element cannot be asked, a listing prints the rest,
a line on standard error says why, and the exit code is 1. JSON is one document for a command, and a list where there can be several, however many there are;
any YAML reader reads it. All commands use the same names: `topic`, `partition` (a number beside its topic), `broker`, `leader` (null if there is none), `problem` (null if
there is none), `…_ms` for times in milliseconds since 1970. A record's own time keeps Kafka's name, `timestamp`. `consume --output json` prints an object a line ([RECORDS.md](RECORDS.md)). `--quiet` leaves out all but data and errors.
A command that waits for longer than two seconds prints `waiting: …` on standard error, once, and again when it waits for something else.
`ottla schema COMMAND` and `ottla pipeline schema JOB` print the JSON schema; what follows is the same in short: `[…]` is a list, `{…}` an object, `?` behind a name says that the field may be
missing, `null` that it may be null. JSON is any value: what a znode, or a record of Kafka's internal topics, has.
"""

JOBS = """\
`lake`, `replay` and `mirror` always print JSON, one line; `lake --files` and `lake --infer` print lines.
`ottla pipeline schema NAME` prints the JSON schema. What each means: [PIPELINES.md](PIPELINES.md)."""


def short(schema: dict[str, Any]) -> str:
    """Return a schema as one line."""
    if "anyOf" in schema:
        parts = [short(s) for s in schema["anyOf"]]
        return " or ".join(parts)
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    kind = schema.get("type")
    if kind == "array":
        return f"[{short(schema['items'])}]"
    if kind == "object":
        required = schema.get("required", ())
        fields = [
            f"{name}{'' if name in required else '?'}: {short(inner)}"
            for name, inner in schema.get("properties", {}).items()
        ]
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            fields.append(f"NAME: {short(extra)}")
        elif extra is None:
            fields += [
                *(f"{name}: …" for name in required if name not in schema.get("properties", {})),
                "…",
            ]
        return "{" + ", ".join(fields) + "}"
    names = {"string": "text", "integer": "whole number", "boolean": "true/false"}
    return names.get(str(kind), str(kind) if kind else "JSON")


def page() -> str:
    """Return the whole page."""
    lines = [INTRODUCTION, "## Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES]
    lines += ["", "## Environment", "", "| variable | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {meaning} |" for name, meaning in ENVIRONMENT]
    lines += ["", "## Commands", "", "| command | prints |", "|---|---|"]
    lines += [
        f"| `{name}` | `{short(schema)}` |"
        for name, schema in ((name, schema_of(name)) for name in COMMANDS)
    ]
    lines += ["", "## Jobs of `ottla pipeline`", "", JOBS, "", "| job | prints |", "|---|---|"]
    lines += [f"| `pipeline {name}` | `{short(schema)}` |" for name, schema in RESULTS.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
