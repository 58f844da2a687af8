"""What the authorizer remembers of decisions is bounded by its size, whatever the names are."""

from ottla.security import authorizer
from ottla.security.acls import DESCRIBE, TOPIC
from ottla.security.authorizer import AclAuthorizer
from ottla.security.sasl.exchange import user

ALICE = user("alice")


def remembered(known):
    return 4 * sum(len(name) for *_, name in known._decisions)


def test_a_name_that_no_topic_has_is_not_remembered():
    known = AclAuthorizer()
    for n in range(1000):
        assert not known.allows(ALICE, "h", DESCRIBE, TOPIC, f"\U0001f600{n}" + "x" * 32_700)
    assert not known._decisions
    assert not AclAuthorizer([ALICE]).allows(user("b" * 500), "h", DESCRIBE, TOPIC, "t")


def test_names_count_by_their_length():
    known = AclAuthorizer()
    for n in range(30_000):
        known.allows(ALICE, "h", DESCRIBE, TOPIC, f"\U0001f600{n:>200}")
    assert remembered(known) <= 4 * authorizer.MOST_CHARACTERS
    assert len(known._decisions) > 100
    known.set(authorizer.Pattern(TOPIC, "t"), [authorizer.Entry("User:a", "*", 3, 3)])
    assert known._characters == 0
