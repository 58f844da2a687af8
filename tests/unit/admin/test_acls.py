"""`ottla acls`: what is typed is checked before anything is asked; what it proposes is right."""

import shlex
from dataclasses import fields

import pytest

from ottla.admin.commands import acls as commands
from ottla.admin.connection import Target
from ottla.admin.operations import acl_text
from ottla.cli import UsageError
from ottla.security.acls import (
    ALLOW,
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    GROUP,
    PREFIXED,
    READ,
    TRANSACTIONAL_ID,
    WRITE,
    Acl,
    Entry,
    Pattern,
)


@pytest.mark.parametrize(
    ("command", "options", "says"),
    [
        (commands.add, {"principal": "User:a"}, "name one resource"),
        (commands.add, {"principal": "User:a", "topic": "t", "group": "g"}, "name one resource"),
        (commands.add, {"principal": "User:a", "topic": ""}, "name one resource"),
        (commands.add, {"principal": "alice", "topic": "t"}, "User:alice"),
        (commands.add, {"principal": "User:a", "topic": "t", "operation": ["Reed"]}, "Reed"),
        (
            commands.add,
            {"principal": "User:a", "topic": "t", "operation": ["IdempotentWrite"]},
            "Topic knows no IdempotentWrite",
        ),
        (commands.add, {"principal": "User:a", "cluster": True, "prefixed": True}, "--prefixed"),
        (commands.remove, {}, "name what to remove"),
        (commands.check, {"principal": "User:a", "operation": "Reed", "topic": "t"}, "Reed"),
    ],
)
def test_what_makes_no_sense_is_refused_before_a_broker_is_asked(command, options, says):
    given = {f.name for f in fields(commands.Named)} & options.keys()
    named = commands.Named(**{name: options[name] for name in given})
    rest = {name: value for name, value in options.items() if name not in given}
    with pytest.raises(UsageError) as caught:
        command(named, Target(), **rest)
    assert says in str(caught.value)


def test_a_proposed_command_is_one_that_can_be_typed():
    def proposed(pattern, operation, host="*"):
        return acl_text.as_command(Acl(pattern, Entry("User:app", host, operation, ALLOW)))

    assert proposed(Pattern(TRANSACTIONAL_ID, "t"), WRITE, "10.0.0.1") == (
        "ottla acls add User:app --operation Write --transactional-id t --host 10.0.0.1"
    )
    assert proposed(Pattern(GROUP, "g-", PREFIXED), READ) == (
        "ottla acls add User:app --operation Read --group g- --prefixed"
    )
    assert proposed(Pattern(CLUSTER, CLUSTER_NAME), CLUSTER_ACTION) == (
        "ottla acls add User:app --operation ClusterAction --cluster"
    )
    assert shlex.split(proposed(Pattern(GROUP, "a b; c"), READ))[-1] == "a b; c"


def test_operations_are_known_by_any_way_to_write_them():
    for text in ("ClusterAction", "cluster_action", "CLUSTER-ACTION", "clusteraction"):
        assert acl_text.operation_of(text) == CLUSTER_ACTION
