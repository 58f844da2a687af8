"""The console on Apache Kafka 3.9: the same pages, without what only our own files tell."""

import re

import pytest
from confluent_kafka import Consumer, Producer

from support.console import console_on, form_token, until_text
from support.kafka39 import Kafka39Cluster

pytestmark = [pytest.mark.java, pytest.mark.processes]


def test_every_page_of_a_real_kafka(tmp_path):
    with Kafka39Cluster(tmp_path, 1) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "copier"})
        producer.init_transactions(60)
        producer.begin_transaction()
        for number in range(5):
            producer.produce("orders", f"value {number}", "key", partition=0)
        producer.commit_transaction(60)
        consumer = Consumer(
            {"bootstrap.servers": kafka.bootstrap, "group.id": "readers",
             "auto.offset.reset": "earliest", "enable.auto.commit": False}
        )  # fmt: skip
        consumer.subscribe(["orders"])
        assert consumer.poll(60).value() == b"value 0"
        consumer.commit(asynchronous=False)
        consumer.close()
        with console_on(kafka.bootstrap) as http:

            def get(path, status=200):
                response = http.get(path)
                assert response.status_code == status, response.text
                return response.text

            until_text(get, "orders", "/topics", 30)
            assert "controller" in get("/")
            for path in (
                "/topic?name=orders", "/produce?topic=orders", "/broker?id=0", "/transactions",
                "/transaction?id=copier", "/reassign", "/users", "/whatif", "/whatif?broker=0",
                "/settings?kind=broker", "/settings?kind=broker&name=0",
                "/settings?kind=topic&name=orders", "/transactions?hanging=1",
            ):  # fmt: skip
                get(path)
            records = get("/messages?topic=orders&from=beginning&isolation=committed")
            assert re.findall(r">(value \d)</pre>", records) == [f"value {n}" for n in range(5)]
            lag = get("/group?name=readers")
            # The marker of the transaction has an offset, too.
            assert "<dt>Lag in total</dt><dd>5</dd>" in lag
            assert "the brokers have no authorizer" in get("/acls", 502)
            assert "start it with --dir" in get("/why?partition=orders-0", 502)
            text = until_text(get, "as of", "/doctor", 60)
            assert "few-replicas" in text
            fields = {"kind": "topic", "name": "orders", "key": "retention.ms", "value": "86400000"}
            data = {"form_token": form_token(http), **fields}
            preview = http.post("/settings/alter", data=data)
            assert preview.status_code == 200, preview.text
            assert "604800000" in preview.text
            assert "86400000" in http.post("/settings/alter", data={**data, "do": "1"}).text
            data = {"form_token": form_token(http), "topic": "orders", "value": "new", "do": "1"}
            assert ">new</pre>" in http.post("/produce", data=data).text
            plan = {"form_token": form_token(http), "topics": "orders"}
            assert "nothing would move" in http.post("/reassign/plan", data=plan).text
            reset = {"form_token": form_token(http), "name": "readers", "to": "earliest"}
            assert "This is a preview" in http.post("/group/reset", data=reset).text
            kafka.kill(0)
            until_text(get, "does not respond", "/")
