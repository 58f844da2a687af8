"""Topics of a cluster for tests, made and deleted while its controller dies or waits for a core."""

from types import SimpleNamespace

import pytest

from ottla.model.errors import ConnectionLostError, ErrorCode, OttlaError
from ottla.testing.sync_cluster import SyncCluster

REFUSED = ErrorCode.INVALID_REPLICATION_FACTOR
NO_RESPONSE = ConnectionLostError("no response")


class Scripted(SyncCluster):
    """A cluster without brokers: its controller's answers are given, the last one for ever."""

    def __init__(self, *answers):
        super().__init__(1)
        self.answers = list(answers)

    @property
    def controller(self):
        return 1

    def _ask(self, broker, request, timeout_s=1.0):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        result = SimpleNamespace(error_code=answer, error_message=None)
        return SimpleNamespace(topics=[result], responses=[result])

    def _known_to_all(self, topic, partitions):
        return True

    def _forgotten(self, topic):
        return True


def test_a_refusal_is_told_also_where_the_last_attempt_got_no_response():
    with pytest.raises(OttlaError, match=r"topic t was not created: .*REPLICATION_FACTOR"):
        Scripted(REFUSED, NO_RESPONSE).create_topic("t", timeout_s=0.3)
    with pytest.raises(OttlaError, match=r"not within 0.3 s: topic t is created: no response"):
        Scripted(NO_RESPONSE).create_topic("t", timeout_s=0.3)


def test_what_a_controller_did_before_it_died_counts():
    Scripted(NO_RESPONSE, ErrorCode.TOPIC_ALREADY_EXISTS).create_topic("t", timeout_s=5)
    Scripted(NO_RESPONSE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION).delete_topic("t", timeout_s=5)
    Scripted(NO_RESPONSE, ErrorCode.NONE).create_topic("t", timeout_s=5)


def test_what_was_there_before_is_refused_at_once():
    with pytest.raises(OttlaError, match=r"was not created: .*TOPIC_ALREADY_EXISTS"):
        Scripted(ErrorCode.TOPIC_ALREADY_EXISTS).create_topic("t", timeout_s=5)
    with pytest.raises(OttlaError, match=r"was not deleted: .*UNKNOWN_TOPIC"):
        Scripted(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION).delete_topic("t", timeout_s=5)
