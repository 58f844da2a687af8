"""The rules of `ottla doctor`: their texts, which `rules.toml` keeps, and all of them together."""

import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from ottla.admin.diagnosis.facts import Facts, Finding, Severity, some


@cache
def _texts() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def finding(
    name: str,
    subjects: Iterable[object],
    commands: Sequence[Sequence[str]] = (),
    /,
    *,
    found: str = "",
    fix: str = "",
    **values: object,
) -> Finding:
    """Return a finding of the rule of this name; `values` stand in its texts.

    `found` and `fix` take the place of the rule's own texts. `commands` carry out the fix.
    """
    named = list(subjects)
    rule = _texts()[name]
    values |= {
        "subjects": some(named),
        "command": " ".join(["ottla", *commands[0]] if commands else []),
    }

    def text(part: str) -> str:
        return rule[part].format_map(values)

    return Finding(
        name,
        Severity(rule["severity"]),
        [str(subject) for subject in named],
        found or text("found"),
        text("rule"),
        fix or text("fix"),
        commands,
    )


def brokers(ids: Iterable[int]) -> list[str]:
    """Return brokers as the subjects of a finding."""
    return [f"broker {broker}" for broker in ids]


def ids(brokers: Iterable[int]) -> str:
    """Return brokers as a sentence names them."""
    return ", ".join(map(str, brokers))


def judged(facts: Facts) -> list[Finding]:
    """Return the findings of all rules, the worst first."""
    from ottla.admin.diagnosis import brokers, clients, replicas

    rules = (*brokers.RULES, *replicas.RULES, *clients.RULES)
    order = list(Severity)
    found = [finding for rule in rules for finding in rule(facts)]
    return sorted(found, key=lambda finding: order.index(finding.severity))
