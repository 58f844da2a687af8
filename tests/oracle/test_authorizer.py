"""Random ACLs and questions, beside Kafka 3.9.1's own class `AclAuthorizer`."""

import random
import subprocess
from pathlib import Path

import pytest

from ottla.security.authorizer import AclAuthorizer
from support import kafka_tools
from support.acl_model import principal, random_acl, random_question

PROGRAM = Path(__file__).parents[1] / "support" / "Authorizer.java"
pytestmark = [
    pytest.mark.java,
    pytest.mark.timeout(180),
    pytest.mark.skipif(bool(kafka_tools.why_not()), reason=kafka_tools.why_not() or ""),
]
CASES, QUESTIONS = 400, 40


def kafkas(lines):
    done = subprocess.run(
        kafka_tools.command(str(PROGRAM)),
        input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=150, check=True,
    )  # fmt: skip
    return [answer == "1" for answer in done.stdout.split()]


def test_random_questions_are_answered_as_by_kafka():
    chance = random.Random(39)
    lines, ours = [], []
    for _ in range(CASES):
        if_no_acl = chance.random() < 0.3
        supers = ["User:b"] if chance.random() < 0.2 else []
        acls = [random_acl(chance) for _ in range(chance.randint(0, 25))]
        authorizer = AclAuthorizer(map(principal, supers), allow_if_no_acl=if_no_acl)
        lines.append("\t".join(["new", str(if_no_acl).lower(), *supers]))
        by_pattern = {}
        for pattern, entry in acls:
            by_pattern.setdefault(pattern, set()).add(entry)
            kind, name, pattern_type = pattern
            words = (kind, pattern_type, name, *entry)
            lines.append("\t".join(["acl", *map(str, words)]))
        authorizer.replace(by_pattern)
        for _ in range(QUESTIONS):
            q = random_question(chance)
            who = principal(q.principal)
            lines.append("\t".join(["ask", *map(str, q)]))
            ours.append(authorizer.allows(who, q.host, q.operation, q.resource_type, q.name))
            if chance.random() < 0.5:
                lines.append("\t".join(["any", *map(str, q[:4])]))
                ours.append(authorizer.allows_any(who, q.host, q.operation, q.resource_type))
    theirs = kafkas(lines)
    asked = [line for line in lines if line.startswith(("ask", "any"))]
    assert len(theirs) == len(ours)
    differing = [(line, a, b) for line, a, b in zip(asked, ours, theirs, strict=True) if a is not b]
    assert not differing, differing[:5]
    assert 0.1 * len(ours) < sum(ours) < 0.9 * len(ours), "both answers are common"
