"""Half-made authorization never starts (F40), and whole one is read as Kafka reads it."""

import pytest

from ottla.broker.authorization.request_authorizer import ACL_AUTHORIZER, configured_authorizer
from ottla.model.config import BrokerConfig
from ottla.model.errors import ConfigError
from ottla.security.principals import Principal

NAME = "authorizer.class.name"


def read(**settings):
    keys = {k.replace("_", "."): v for k, v in settings.items()}
    return configured_authorizer(
        BrokerConfig({"zookeeper.connect": "z:1", "broker.id": "1", **keys})
    )


def test_without_an_authorizer_there_is_none():
    assert read() is None
    assert read(authorizer_class_name="  ") is None


def test_super_users_are_parted_by_semicolons():
    found = read(authorizer_class_name=ACL_AUTHORIZER, super_users="User:a; User:CN=b,O=c;Group:d")
    assert found.super_users == {
        Principal("User", "a"), Principal("User", "CN=b,O=c"), Principal("Group", "d"),
    }  # fmt: skip
    assert not found.allow_if_no_acl
    assert read(
        authorizer_class_name=ACL_AUTHORIZER, allow_everyone_if_no_acl_found="TRUE"
    ).allow_if_no_acl


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"authorizer_class_name": "org.example.Own"}, NAME),
        ({"authorizer_class_name": "kafka.security.auth.SimpleAclAuthorizer"}, NAME),
        (
            {"authorizer_class_name": ("org.apache.kafka.metadata.authorizer.StandardAuthorizer")},
            NAME,
        ),
        ({"super_users": "User:a"}, NAME),
        ({"allow_everyone_if_no_acl_found": "false"}, NAME),
        ({"authorizer_class_name": ACL_AUTHORIZER, "super_users": "admin"}, "super.users"),
        (
            {"authorizer_class_name": ACL_AUTHORIZER, "allow_everyone_if_no_acl_found": "yes"},
            "allow.everyone.if.no.acl.found",
        ),
        (
            {"authorizer_class_name": ACL_AUTHORIZER, "authorizer_zookeeper_url": "other:2181"},
            "authorizer.zookeeper.url",
        ),
    ],
)
def test_what_would_leave_the_broker_open_is_refused_with_its_key(settings, key):
    with pytest.raises(ConfigError) as caught:
        read(**settings)
    assert key in str(caught.value)
    assert "\n" not in str(caught.value)
