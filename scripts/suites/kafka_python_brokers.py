"""A plugin for kafka-python's tests of SASL and SSL, which start brokers for themselves.

They get a broker that runs already, from `cluster.py --secured`: its addresses, users and CA are in
SUITE_SASL_BOOTSTRAP, SUITE_SSL_BOOTSTRAP, SUITE_PLAIN, SUITE_SCRAM and SUITE_CERTIFICATES, its
listener in the clear in SUITE_BOOTSTRAP. Runs in the suite's own virtual environment.
"""

import os
import shutil
import tempfile
from pathlib import Path

from kafka import KafkaConsumer
from test.integration import fixtures


class RunningBroker(fixtures.KafkaFixture):
    """A broker that was started by others."""

    @classmethod
    def instance(cls, broker_id, transport="PLAINTEXT", sasl_mechanism=None, **_settings):
        name = "SASL" if sasl_mechanism else transport
        host, _, port = os.environ[f"SUITE_{name}_BOOTSTRAP"].rpartition(":")
        broker = cls(
            host, int(port), broker_id, external=True, transport=transport, partitions=4,
            sasl_mechanism=sasl_mechanism,
        )  # fmt: skip
        if sasl_mechanism:
            user = os.environ["SUITE_PLAIN" if sasl_mechanism == "PLAIN" else "SUITE_SCRAM"]
            broker.broker_user, _, broker.broker_password = user.partition(":")
        broker.ssl_dir = tempfile.mkdtemp()
        ca = Path(os.environ["SUITE_CERTIFICATES"], "ca.pem")
        shutil.copy(ca, Path(broker.ssl_dir, "ca-cert"))
        return broker

    def start(self):
        """It runs."""

    def close(self):
        """It goes on; only what was written for it goes."""
        if self.ssl_dir:
            shutil.rmtree(self.ssl_dir, ignore_errors=True)

    def get_topic_names(self):
        """Ask over another listener. Kafka's tool does it in kafka-python's fixture."""
        with KafkaConsumer(bootstrap_servers=os.environ["SUITE_BOOTSTRAP"]) as consumer:
            return sorted(consumer.topics())


fixtures.KafkaFixture.instance = RunningBroker.instance
