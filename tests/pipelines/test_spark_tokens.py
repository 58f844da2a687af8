"""Spark's own token provider obtains a delegation token, and Spark's connector reads by it.

Spark is one process here: the driver logs in by PLAIN and gets the token, as on a cluster it would
by a keytab; the connector is given no user and no password, and must find the token.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from support.certificates import Authority
from support.sasl_clusters import PLAIN
from support.sasl_ssl import ONE_BROKER, OPERATOR, SaslSslOttla
from support.secret_scan import znodes

pytestmark = [
    pytest.mark.java,
    pytest.mark.processes,
    pytest.mark.spark,
    pytest.mark.alone,
    pytest.mark.timeout(300),
]

TOPIC, RECORDS = "orders", 300
USERS = {"lander": "planted-lander-password"}
PROGRAM = """
import json, sys
from ottla.pipelines.session import Work, start_session
from support.spark_connector import with_connector

servers, truststore, jaas, topic = sys.argv[1:]
at = "spark.kafka.clusters.ottla."
conf = {
    "auth.bootstrap.servers": servers,
    "target.bootstrap.servers.regex": ".*",
    "security.protocol": "SASL_SSL",
    "sasl.token.mechanism": "SCRAM-SHA-512",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": truststore,
}
login = {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": jaas}
spark = start_session("tokens", with_connector("local[2]"), work=Work(quick_java=True))
jvm = spark._jvm
kafka = jvm.org.apache.spark.kafka010


def of_cluster(settings):
    found = jvm.org.apache.spark.SparkConf(False)
    for key, value in settings.items():
        found.set(at + key, value)
    return found


obtaining = of_cluster(conf | login)
cluster = kafka.KafkaTokenSparkConf.getClusterConfig(obtaining, "ottla")
token = kafka.KafkaTokenUtil.obtainToken(obtaining, cluster)._1()
credentials = jvm.org.apache.hadoop.security.Credentials()
credentials.addToken(token.getService(), token)
jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().addCredentials(credentials)
environment = jvm.org.apache.spark.SparkEnv.get().conf()
for key, value in conf.items():
    environment.set(at + key, value)
rows = (
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("kafka.ssl.truststore.type", "PEM")
    .option("kafka.ssl.truststore.location", truststore)
    .option("subscribe", topic)
    .load()
    .selectExpr("CAST(value AS STRING)")
    .collect()
)
print(json.dumps({"rows": sorted(int(row[0]) for row in rows)}))
spark.stop()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens")
    settings = ONE_BROKER | {"delegation_token_secret_key": "token-key-of-tests"}
    authority = Authority(folder / "ca")
    with SaslSslOttla(folder / "c", authority, 1, USERS, **settings) as running:
        admin = AdminClient(running.client(OPERATOR))
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(30)
        producer = Producer(running.client(OPERATOR))
        for n in range(RECORDS):
            producer.produce(TOPIC, str(n))
        assert producer.flush(30) == 0
        yield running


def read(cluster):
    jaas = f'{PLAIN} required username="lander" password="{cluster.passwords["lander"]}";'
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, cluster.secure_bootstrap, str(cluster.authority.pem), jaas,
         TOPIC],
        capture_output=True, text=True, timeout=200, check=False, cwd=cluster.folder,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
    )  # fmt: skip


def test_a_token_is_its_owner_and_may_do_what_that_one_may(cluster):
    refused = read(cluster)
    assert refused.returncode != 0
    assert "Authorization" in refused.stderr, "its owner has no right yet"
    cluster.allow("lander", ("Read", "--topic", TOPIC))
    done = read(cluster)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"rows": list(range(RECORDS))}
    owners = [
        json.loads(data)["owner"]
        for path, data in znodes(cluster.zookeeper)
        if path.startswith("/delegation_token/tokens/")
    ]
    assert owners == ["User%3Alander"] * 2, "as Kafka writes it"
