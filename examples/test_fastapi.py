"""A service made with FastAPI: it answers 201 only for what is kept, also while brokers die."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import httpx
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from fastapi import FastAPI, HTTPException, Request

from ottla import SyncCluster
from ottla.testing.chaos import Chaos

ORDERS = 300


def make_service(bootstrap: str) -> FastAPI:
    """Stand for your application."""

    @asynccontextmanager
    async def lifespan(service: FastAPI) -> AsyncIterator[None]:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, acks="all", enable_idempotence=True
        ) as producer:
            service.state.producer = producer
            yield

    service = FastAPI(lifespan=lifespan)

    @service.post("/customers/{customer}/orders/{number}", status_code=201)
    async def order(request: Request, customer: str, number: int) -> dict[str, int]:
        producer = request.app.state.producer
        value = f"order {number}".encode()
        try:
            kept = await producer.send_and_wait("orders", value, key=customer.encode())
        except KafkaError as error:
            raise HTTPException(503, f"not kept: {error}") from error
        return {"partition": kept.partition, "offset": kept.offset}

    return service


@pytest.mark.ottla(brokers=3, in_process=True)
def test_what_was_answered_with_201_is_kept(ottla_cluster: SyncCluster, chaos: Chaos) -> None:
    ottla_cluster.create_topic("orders", partitions=3)
    service = make_service(ottla_cluster.bootstrap)

    async def send_orders() -> int:
        """Send orders until each fault has happened; return how many were answered with 201."""
        transport = httpx.ASGITransport(app=service)
        kept = 0
        async with (
            service.router.lifespan_context(service),
            httpx.AsyncClient(transport=transport, base_url="http://shop") as client,
        ):
            for number in count():
                customer = f"customer-{number % 5}"
                answer = await client.post(f"/customers/{customer}/orders/{number}")
                if answer.status_code == 201:
                    chaos.acknowledged("orders", customer, f"order {number}", **answer.json())
                    kept += 1
                if not chaos.pending and kept >= ORDERS:
                    break
        return kept

    with chaos.during("kill_leader", "kill_controller", pause_s=(0.0, 0.1), longest_s=0.3):
        kept = asyncio.run(send_orders())
    assert chaos.check().acknowledged == kept
