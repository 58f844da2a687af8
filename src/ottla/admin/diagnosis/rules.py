"""All rules of `ottla doctor` together, with the texts of their findings (`rules.toml`)."""

import shlex
import tomllib
from functools import cache
from pathlib import Path

from ottla.admin.diagnosis import brokers, clients, replicas
from ottla.admin.diagnosis.facts import Facts, Finding, Found, Severity, some

RULES = (*brokers.RULES, *replicas.RULES, *clients.RULES)


@cache
def _texts() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def judged(facts: Facts) -> list[Finding]:
    """Return the findings of all rules, the worst first."""
    order = list(Severity)
    found = [_worded(found) for rule in RULES for found in rule(facts)]
    return sorted(found, key=lambda finding: order.index(finding.severity))


def _worded(found: Found) -> Finding:
    texts = _texts()[found.name]
    command = " ".join(["ottla", *found.commands[0]]) if found.commands else ""  # as people type it
    values = {**found.values, "subjects": some(found.subjects), "command": command}
    return Finding(
        found.name,
        Severity(texts["severity"]),
        [str(subject) for subject in found.subjects],
        found.found or texts["found"].format_map(values),
        texts["rule"].format_map(values),
        found.fix or texts["fix"].format_map(values),
        [shlex.join(["ottla", *words]) for words in found.commands],
    )
