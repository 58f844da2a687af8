"""Scenarios of SCRAM users, delegation tokens and SASL requests on a listener without SASL."""

from collections.abc import Iterator
from typing import Any

from differential_tables import Scenario

SHA256, SHA512 = 1, 2


def by_user(answer: Any) -> Any:
    """Return a response whose results are in the order of their users: Kafka's is a hash map's."""
    answer["results"].sort(key=lambda result: result["user"])
    return answer


def upsertion(name: str, mechanism: int = SHA256, iterations: int = 8192, **more: Any) -> Any:
    return {"name": name, "mechanism": mechanism, "iterations": iterations, "salt": b"salt",
            "salted_password": b"p" * 32, **more}  # fmt: skip


def users() -> Iterator[Scenario]:
    def alter(name: str, *upsertions: Any, deletions: tuple[tuple[str, int], ...] = ()) -> Scenario:
        gone = [{"name": n, "mechanism": m} for n, m in deletions]
        body = {"upsertions": list(upsertions), "deletions": gone}
        return Scenario(51, name, body, seen=by_user)

    def describe(name: str, *names: str, every: bool = False) -> Scenario:
        users = None if every else [{"name": n} for n in names]
        return Scenario(50, name, {"users": users}, seen=by_user)

    yield describe("none there", every=True)
    yield alter("none")
    yield alter("one", upsertion("u"))
    yield alter("the other mechanism", upsertion("u", SHA512, 4096))
    yield alter("two users", upsertion("v"), upsertion("w", SHA512, 16384))
    yield alter("a name to be encoded", upsertion("a/b c*=ä"))
    yield alter("few iterations", upsertion("x", iterations=4095))
    yield alter("no iterations", upsertion("x", iterations=0))
    yield alter("many iterations", upsertion("x", iterations=16385))
    yield alter("unknown mechanism", upsertion("x", 7))
    yield alter("no mechanism", upsertion("x", 0))
    yield alter("no name", upsertion(""))
    yield alter("no name, unknown mechanism", upsertion("", 9))
    yield alter("twice", upsertion("t"), upsertion("t"))
    yield alter("twice and wrong", upsertion("t"), upsertion("t", iterations=1))
    yield alter("two mechanisms, one wrong", upsertion("z"), upsertion("z", SHA512, 1))
    yield alter("set and removed", upsertion("u"), deletions=(("u", SHA256),))
    yield alter("removed that is not there", deletions=(("nope", SHA256),))
    yield alter("removed with no name", deletions=(("", SHA256),))
    yield alter("removed of an unknown mechanism", deletions=(("u", 5),))
    yield alter("removed of one that has another", deletions=(("v", SHA512),))
    yield alter("one good, one bad", upsertion("good"), upsertion("bad", iterations=1))
    yield alter("empty salt", upsertion("e", salt=b"", salted_password=b""))
    yield describe("all", every=True)
    yield describe("an empty list")
    yield describe("one of them", "u")
    yield describe("an encoded one", "a/b c*=ä")
    yield describe("one that is not there", "nope")
    yield describe("no name at all", "")
    yield describe("the same twice", "u", "u")
    yield describe("several", "u", "nope", "v")
    yield alter("removed", deletions=(("u", SHA256),))
    yield alter("removed entirely", deletions=(("u", SHA512),))
    yield describe("one that was removed", "u")


def tokens() -> Iterator[Scenario]:
    renewer = {"principal_type": "User", "principal_name": "r"}
    yield Scenario(38, "in the clear", {"renewers": [renewer], "max_lifetime_ms": -1})
    yield Scenario(38, "for another", {"owner_principal_type": "User", "owner_principal_name": "o",
                                       "max_lifetime_ms": 5}, 3)  # fmt: skip
    yield Scenario(38, "wrong renewer", {"renewers": [{"principal_type": "Group",
                                                       "principal_name": "g"}]})  # fmt: skip
    yield Scenario(39, "in the clear", {"hmac": b"x", "renew_period_ms": 5})
    yield Scenario(40, "in the clear", {"hmac": b"x", "expiry_time_period_ms": 5})
    yield Scenario(41, "all", {"owners": None})
    yield Scenario(41, "none", {"owners": []})
    yield Scenario(41, "one", {"owners": [renewer]})


def sasl() -> Iterator[Scenario]:
    yield Scenario(17, "handshake in the clear", {"mechanism": "PLAIN"})
    yield Scenario(17, "unknown mechanism", {"mechanism": "x"})
    yield Scenario(36, "token in the clear", {"auth_bytes": b"\0u\0p"})


def security() -> list[Scenario]:
    return [*users(), *tokens(), *sasl()]
