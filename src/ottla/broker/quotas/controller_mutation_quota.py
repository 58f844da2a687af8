"""Controller mutation quota: partitions that a client may create and delete per second (KIP-599).

Each request has its own `ControllerMutationQuota`. Times are milliseconds of a monotonic clock.
Invariants:
- A strict quota refuses a request while the bucket is below zero and accepts any other, so that a
  request larger than the bucket is possible.
- A permissive quota (request versions without the error code) accepts every request; the response's
  throttle time makes the client wait.

Kafka: `ControllerMutationQuotaManager` and `TokenBucket`.
"""

from collections.abc import Callable

from ottla.broker.quotas.client_quotas import MUTATION_RATE, ClientQuotas, Entity
from ottla.model.errors import ErrorCode, OttlaError
from ottla.replication.throttle import UNBOUNDED
from ottla.wire.headers import RequestHeader

_MOST_BUCKETS = 10_000
_LONGEST_MS = 2**31 - 1

NEVER_STRICT = 2**15
"""A request version that does not exist: the quota is never strict."""

Charge = Callable[[int], None]
"""Takes a number of partitions from a client's bucket. Raises ThrottlingQuotaExceededError."""


class ThrottlingQuotaExceededError(OttlaError):
    """The client must wait; the response says how long."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class TokenBucket:
    """A token bucket: `rate` tokens per second, at most those of all windows; may go below zero."""

    def __init__(self, span_ms: float) -> None:
        self._span_s = span_ms / 1000
        self._tokens: float | None = None
        self._at_ms = 0.0

    def tokens(self, rate: float, now_ms: float) -> float:
        """Return how many there are, given so many per second."""
        most = rate * self._span_s
        if self._tokens is None:
            self._tokens = most
        self._tokens = min(most, self._tokens + rate * (now_ms - self._at_ms) / 1000)
        self._at_ms = now_ms
        return self._tokens

    def take(self, count: float, rate: float, now_ms: float) -> float:
        """Take tokens; return how many are left, below zero if there were too few."""
        self._tokens = self.tokens(rate, now_ms) - count
        return self._tokens


class ControllerMutationQuota:
    """The quota of one request: its client's bucket, strict or permissive."""

    def __init__(
        self, rate: float, bucket: TokenBucket | None, now_ms: Callable[[], float], *, strict: bool
    ) -> None:
        self._rate = rate
        self._bucket = bucket
        self._now_ms = now_ms
        self._strict = strict
        self._until_ms = 0.0

    def charge(self, count: int) -> None:
        """Take `count` partitions. ThrottlingQuotaExceededError: a strict quota is exhausted."""
        rate, bucket = self._rate, self._bucket
        if bucket is None:
            return
        now_ms = self._now_ms()
        left = bucket.tokens(rate, now_ms) if self._strict else bucket.take(count, rate, now_ms)
        if left < 0:
            wait_ms = round(-left / rate * 1000) if rate > 0 else _LONGEST_MS
            self._until_ms = now_ms + min(wait_ms, _LONGEST_MS)
            if self._strict:
                raise ThrottlingQuotaExceededError
        elif self._strict:
            bucket.take(count, rate, now_ms)

    def wait_ms(self) -> int:
        """Return the throttle time in milliseconds from now on."""
        return max(0, round(self._until_ms - self._now_ms()))


class ControllerMutationQuotas:
    """The buckets of all clients that have a quota. `clock` returns milliseconds."""

    def __init__(
        self, quotas: ClientQuotas, samples: int, window_ms: float, clock: Callable[[], float]
    ) -> None:
        self._quotas = quotas
        self._span_ms = samples * window_ms
        self._clock = clock
        self._buckets: dict[Entity, TokenBucket] = {}

    def quota(
        self, user: str, header: RequestHeader, strict_since: int = NEVER_STRICT
    ) -> ControllerMutationQuota:
        """Return a user's quota for a request; permissive for versions before `strict_since`."""
        rate, shared = self._quotas.bound(MUTATION_RATE, user, header.client_id or "")
        bucket = None if rate == UNBOUNDED else self._bucket(shared)
        strict = header.api_version >= strict_since
        return ControllerMutationQuota(rate, bucket, self._clock, strict=strict)

    def _bucket(self, shared: Entity) -> TokenBucket:
        bucket = self._buckets.get(shared)
        if bucket is None:
            if len(self._buckets) >= _MOST_BUCKETS:
                self._buckets.clear()
            bucket = self._buckets[shared] = TokenBucket(self._span_ms)
        return bucket
