"""Client quotas: how many bytes and how much time the clients of one name may cost this broker.

Time is an argument, in milliseconds of a clock that never goes back. Invariants: without any bound
nothing is counted; of several bounds that fit a client the most specific one counts, alone; a
client over its bound is answered at once (a consumer without records), notified how long to wait,
and not read for so long (KIP-219). Followers and brokers are never held back.

The bounds of `controller_mutation_quota` are looked up here, too.

Kafka: `ClientQuotaManager`, `ClientRequestQuotaManager` and `ConnectionQuotas` (KIP-13,
KIP-55, KIP-124, KIP-612).
"""

import heapq
from collections.abc import Mapping
from typing import NamedTuple

from ottla.replication.throttle import UNBOUNDED, WindowedRate

PRODUCER_RATE = "producer_byte_rate"
CONSUMER_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
MUTATION_RATE = "controller_mutation_rate"
CONNECTION_RATE = "connection_creation_rate"

ANY = "<default>"
"""the entity whose bounds are everybody's who has none by name"""

Entity = tuple[str | None, str | None]
"""(user, client id); None where the bound does not ask for it"""
Bounds = Mapping[str, float]

_MOST_RATES = 10_000
LONGEST_CLIENT_ID = 255
"""No znode of a client's quota has a longer name; clients alike up to here share a rate."""


class Used(NamedTuple):
    """What is used of a bound."""

    name: str
    shared: Entity
    """Who shares it."""
    per_s: float
    held_back_ms: float
    """The last time within all windows, 0 if there was none."""


class ClientQuotas:
    """Bounds by user and client id, and what each of them has used lately."""

    def __init__(self, samples: int, window_ms: float) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._bounds: dict[Entity, Bounds] = {}
        self._found: dict[tuple[str, str, str], tuple[float, Entity]] = {}
        self._rates: dict[tuple[str, Entity], WindowedRate] = {}
        self._waits: dict[tuple[str, Entity], tuple[float, float]] = {}
        """when each was last held back, and for how many ms; only of those in `_rates`"""
        self.connection_rates: dict[str, float] = {}
        """new connections per second, by address or `<default>`"""
        self.active = False
        self.throttled_total = 0

    def set(self, entity: Entity, bounds: Bounds) -> None:
        """Replace the bounds of a user, a client id or a user's client id; none removes them."""
        if bounds:
            self._bounds[entity] = dict(bounds)
        else:
            self._bounds.pop(entity, None)
        self._found.clear()
        self.active = bool(self._bounds)

    def clear(self) -> None:
        """Forget all bounds: they are about to be read again."""
        self._bounds.clear()
        self._found.clear()
        self.connection_rates.clear()
        self.active = False

    def bound(self, name: str, user: str, client: str) -> tuple[float, Entity]:
        """Return the bound in force and who shares it: what they use counts together."""
        if len(client) > LONGEST_CLIENT_ID:
            client = client[:LONGEST_CLIENT_ID]  # rates are kept by it
        key = (name, user, client)
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= _MOST_RATES:
                self._found.clear()
            found = self._found[key] = self._look_up(name, user, client)
        return found

    def _look_up(self, name: str, user: str, client: str) -> tuple[float, Entity]:
        both, by_user, by_client = (user, client), (user, None), (None, client)
        order: tuple[tuple[Entity, Entity], ...] = (
            (both, both),
            ((user, ANY), both),
            (by_user, by_user),
            ((ANY, client), both),
            ((ANY, ANY), both),
            ((ANY, None), by_user),
            (by_client, by_client),
            ((None, ANY), by_client),
        )
        for entity, shared in order:
            bound = self._bounds.get(entity, {}).get(name)
            if bound is not None:
                return bound, shared
        return UNBOUNDED, (None, None)

    def record(self, name: str, user: str, client: str, amount: float, now_ms: float) -> int:
        """Count bytes, or percent of a second; return for how many ms to hold the client back."""
        bound, shared = self.bound(name, user, client)
        if bound == UNBOUNDED:
            return 0
        rate = self._rate(name, shared, now_ms)
        rate.record(amount, now_ms)
        wait_ms = rate.surplus_ms(bound, now_ms)
        if name == REQUEST_PERCENTAGE:
            wait_ms = min(wait_ms, self._window_ms)
        if wait_ms < 1:
            return 0
        self.throttled_total += 1
        self._waits[name, shared] = now_ms, wait_ms
        return round(wait_ms)

    def take_back(self, name: str, user: str, client: str, amount: float, now_ms: float) -> None:
        """Count bytes no longer that were counted at this very moment: they were not sent."""
        bound, shared = self.bound(name, user, client)
        if bound != UNBOUNDED:
            self._rate(name, shared, now_ms).record(-amount, now_ms)

    def at_once(self, name: str, user: str, client: str) -> float:
        """Return the most that one response may hold: what the bound allows in all full windows."""
        bound, _ = self.bound(name, user, client)
        return bound * (self._samples - 1) * self._window_ms / 1000

    def _rate(self, name: str, shared: Entity, now_ms: float) -> WindowedRate:
        rate = self._rates.get((name, shared))
        if rate is None:
            if len(self._rates) >= _MOST_RATES:
                busy = {k: r for k, r in self._rates.items() if r.bytes_per_s(now_ms) > 0}
                self._rates = busy if len(busy) < _MOST_RATES else {}
                self._waits = {k: w for k, w in self._waits.items() if k in self._rates}
            rate = WindowedRate(self._samples, self._window_ms, self._samples - 1)
            self._rates[name, shared] = rate
        return rate

    def used(self, now_ms: float, most: int) -> tuple[list[Used], int]:
        """Return what is used of each bound by the `most` busiest who share it.

        And how many more used something within all windows.
        """
        by_bound: dict[str, list[tuple[float, Entity]]] = {}
        for (name, shared), rate in self._rates.items():
            by_bound.setdefault(name, []).append((rate.bytes_per_s(now_ms), shared))
        oldest_ms = now_ms - self._samples * self._window_ms
        found, left_out = [], 0
        for name, rates in by_bound.items():
            left_out += max(0, sum(per_s > 0 for per_s, _ in rates) - most)
            for per_s, shared in heapq.nlargest(most, rates, key=lambda pair: pair[0]):
                at_ms, wait_ms = self._waits.get((name, shared), (0.0, 0.0))
                found.append(Used(name, shared, per_s, wait_ms if at_ms >= oldest_ms else 0.0))
        return found, left_out

    def connection_rate(self, address: str) -> float:
        """Return how many connections per second an address may make."""
        rates = self.connection_rates
        return rates.get(address, rates.get(ANY, UNBOUNDED))

    def statistics(self) -> dict[str, object]:
        return {
            "entities": len(self._bounds),
            "addresses": len(self.connection_rates),
            "throttled_total": self.throttled_total,
        }
