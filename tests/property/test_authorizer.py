"""The authorizer's index and its memory beside a plain loop over all ACLs."""

import random

from hypothesis import given
from hypothesis import strategies as st

from ottla.security import authorizer as under_test
from ottla.security.acls import (
    ALLOW,
    ANY,
    DENY,
    LITERAL,
    MATCH,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
    Acl,
    AclFilter,
    Entry,
    Pattern,
    allowing,
    nearest,
)
from ottla.security.authorizer import AclAuthorizer
from ottla.security.principals import Principal
from support.acl_model import model_allows, principal, random_acl, random_question

ALICE = Principal("User", "alice")


def ask(authorizer, q):
    return authorizer.allows(principal(q.principal), q.host, q.operation, q.resource_type, q.name)


@given(st.integers(0, 2**32))
def test_the_index_answers_as_a_loop_does_while_acls_come_and_go(seed):
    chance = random.Random(seed)
    if_no_acl, supers = chance.random() < 0.3, {"User:b"} if chance.random() < 0.3 else set()
    authorizer = AclAuthorizer([principal(s) for s in supers], allow_if_no_acl=if_no_acl)
    acls = {}
    questions = [random_question(chance) for _ in range(15)]
    for _ in range(chance.randint(1, 12)):
        acl = random_acl(chance)
        entries = acls.setdefault(acl.pattern, set())
        entries.symmetric_difference_update({acl.entry})
        if chance.random() < 0.1:
            entries.clear()
        authorizer.set(acl.pattern, entries)
        every = [Acl(p, e) for p, some in acls.items() for e in some]
        assert sorted(authorizer.acls()) == sorted(every)
        for q in questions:
            expected = model_allows(every, supers, q, if_no_acl=if_no_acl)
            assert ask(authorizer, q) is expected, (q, every)
            assert ask(authorizer, q) is expected, "the second time it is remembered"
            decision = authorizer.decide(
                principal(q.principal), q.host, q.operation, q.resource_type, q.name
            )
            assert decision.allowed is expected
            if decision.acl is not None:
                assert decision.acl in every
                assert (decision.acl.entry.permission == ALLOW) is expected


@given(st.integers(0, 2**32))
def test_the_nearest_acl_is_none_that_allows_it_and_the_proposed_one_does(seed):
    chance = random.Random(seed)
    every = [random_acl(chance) for _ in range(8)]
    q = random_question(chance)
    who = principal(q.principal)
    asked = (who, q.host, q.operation, q.resource_type, q.name)
    alone = allowing(*asked)
    assert model_allows([alone], set(), q, if_no_acl=False)
    near = nearest(every, *asked)
    candidates = [
        a
        for a in every
        if a.entry.permission == ALLOW
        and a.pattern.resource_type == q.resource_type
        and not model_allows([a], set(), q, if_no_acl=False)
    ]
    assert (near is None) == (not candidates)
    if near is not None:
        assert near.acl in candidates
        # With all in which it differs made alike, it allows.
        pattern, entry = near.acl
        if "resource" in near.differs:
            pattern = alone.pattern
        if "principal" in near.differs:
            entry = entry._replace(principal=q.principal)
        if "host" in near.differs:
            entry = entry._replace(host=q.host)
        if "operation" in near.differs:
            entry = entry._replace(operation=q.operation)
        assert model_allows([Acl(pattern, entry)], set(), q, if_no_acl=False)


def test_decisions_that_are_remembered_have_a_bound(monkeypatch):
    monkeypatch.setattr(under_test, "MOST_DECISIONS", 10)
    authorizer = AclAuthorizer()
    authorizer.set(Pattern(TOPIC, "a"), [Entry("User:alice", "*", READ, ALLOW)])
    for number in range(100):
        assert not authorizer.allows(ALICE, "h", READ, TOPIC, f"t{number}")
        assert authorizer.allows(ALICE, "h", READ, TOPIC, "a")
        assert len(authorizer._decisions) <= 10
        authorizer.allows_any(ALICE, f"h{number}", READ, TOPIC)
        assert len(authorizer._of_any) <= 10


def test_a_change_is_seen_by_the_next_question():
    authorizer = AclAuthorizer()
    pattern = Pattern(TOPIC, "or", PREFIXED)
    before = authorizer.generation
    assert not authorizer.allows(ALICE, "h", READ, TOPIC, "orders")
    assert not authorizer.allows_any(ALICE, "h", READ, TOPIC)
    authorizer.set(pattern, [Entry("User:alice", "*", READ, ALLOW)])
    assert authorizer.allows(ALICE, "h", READ, TOPIC, "orders")
    assert authorizer.allows_any(ALICE, "h", READ, TOPIC)
    assert authorizer.generation == before + 1
    assert not authorizer.set(pattern, [Entry("User:alice", "*", READ, ALLOW)])
    assert authorizer.generation == before + 1
    authorizer.replace({})
    assert not authorizer.allows(ALICE, "h", READ, TOPIC, "orders")
    assert len(authorizer) == 0


def test_a_filter_of_a_name_matches_what_covers_it_only_with_match():
    covering = [Pattern(TOPIC, "*"), Pattern(TOPIC, "or", PREFIXED), Pattern(TOPIC, "orders")]
    other = Pattern(TOPIC, "ord")
    every = [*covering, other]
    match = AclFilter(TOPIC, "orders", MATCH)
    assert [p for p in every if match.selects(p)] == covering
    exact = AclFilter(TOPIC, "orders", ANY)
    assert [p for p in every if exact.selects(p)] == [Pattern(TOPIC, "orders")]
    assert exact.patterns == (Pattern(TOPIC, "orders", LITERAL), Pattern(TOPIC, "orders", PREFIXED))
    assert match.patterns == ()
    acl = Acl(other, Entry("User:a", "*", WRITE, DENY))
    assert AclFilter().matches(acl)
    assert not AclFilter(operation=READ).matches(acl)
    assert not AclFilter(permission=ALLOW).matches(acl)
