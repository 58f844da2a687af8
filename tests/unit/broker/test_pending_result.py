"""A result that cannot be encoded closes its connection, and no other that waits for the event."""

from types import SimpleNamespace

from ottla.broker.requests.responses import PendingResult


class Broken(PendingResult):
    def response(self, result):
        raise ValueError(result)


def test_a_result_that_cannot_be_encoded_closes_its_connection_and_raises_nothing():
    refused, completed = [], []
    connection = SimpleNamespace(refuse=refused.append, completed=completed.append)
    pending = Broken(connection, SimpleNamespace(api_key=11))
    pending.on_result("our bug")
    assert (pending.done, refused, completed) == (True, ["internal error"], [])
