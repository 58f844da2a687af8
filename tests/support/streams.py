"""Streams of Spark in tests: on a busy machine Spark itself may give up before one has begun."""

TOO_BUSY = "failed to connect back"
"""What Spark says when its own Python process takes more than ten seconds to start."""
ATTEMPTS = 10


def run_to_its_end(start, timeout_s=200):
    """Start a stream that ends by itself, again where Spark was too busy; return the query."""
    for attempt in range(ATTEMPTS):
        query = start()
        try:
            assert query.awaitTermination(timeout_s)
            return query
        except Exception as error:
            if TOO_BUSY not in str(error) or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError
