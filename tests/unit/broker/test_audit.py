"""The audit log: a line for each denial, bounded, and none that a client makes up."""

import logging

import pytest

from ottla.broker.authorization.request_authorizer import MOST, MOST_OF_ONE, Audit, printable


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "ottla.authorizer")
    return lambda: [r.getMessage() for r in caplog.records if r.name == "ottla.authorizer"]


def deny(audit, now_s, principal="User:a", host="10.0.0.1", name="Topic:LITERAL:t"):
    audit.denied(now_s, principal, "Read", host, name, "Fetch")


def test_a_line_says_who_what_whence_and_by_which_request(lines):
    deny(Audit(), 1.0)
    (line,) = lines()
    assert line == (
        "denied principal=User:a operation=Read host=10.0.0.1 resource=Topic:LITERAL:t "
        "request=Fetch"
    )


def test_one_client_does_not_fill_the_log_nor_hide_another(lines):
    audit = Audit()
    for _ in range(1000):
        deny(audit, 1.5)
    deny(audit, 1.9, "User:b")
    assert len(lines()) == MOST_OF_ONE + 1
    assert "User:b" in lines()[-1]
    deny(audit, 2.0)
    assert lines()[-2:] == [
        f"denials not logged count={1000 - MOST_OF_ONE}",
        lines()[0],
    ]
    assert audit.denied_total == 1002


def test_many_clients_together_have_a_bound(lines):
    audit = Audit()
    for number in range(5000):
        deny(audit, 3.0, f"User:{number}")
    assert len(lines()) == MOST


def test_a_name_makes_no_line_of_its_own(lines):
    deny(Audit(), 1.0, name="Topic:LITERAL:t\nallowed principal=User:b")
    assert len(lines()[0].split("\n")) == 1
    assert printable("plain-name") == "plain-name"
    assert " " not in printable("a b").strip("'").replace("a b", "")
    assert len(printable("x" * 10_000)) < 300


def test_what_is_allowed_is_logged_at_debug_only(lines, caplog):
    audit = Audit()
    assert not audit.logs_allowed
    caplog.set_level(logging.DEBUG, "ottla.authorizer")
    assert audit.logs_allowed
    audit.allowed("User:a", "Read", "h", "Topic:LITERAL:t", "Fetch")
    assert lines()[-1].startswith("allowed principal=User:a")
