"""The lake's figures, as Prometheus reads them."""

from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from ottla.model.errors import StartupError
from ottla.pipelines.lake.metrics import Metrics


def test_figures_by_topic():
    metrics = Metrics()
    port = metrics.serve(0)
    try:
        metrics.update("b", {"rows_total": 3_000_000_001, "lag_offsets": 0})
        metrics.update("a", {"rows_total": 2})
        metrics.update("b", {"lag_offsets": 7})
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
            lines = page.read().decode().splitlines()
        assert [x for x in lines if not x.startswith("#")] == [
            'ottla_lake_rows_total{topic="a"} 2',
            'ottla_lake_rows_total{topic="b"} 3000000001',
            'ottla_lake_lag_offsets{topic="b"} 7',
        ]
        assert "# TYPE ottla_lake_rows_total counter" in lines
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"http://127.0.0.1:{port}/other", timeout=30)
        with pytest.raises(StartupError, match=f"lake.metrics_port {port}: Address already in use"):
            Metrics().serve(port)
    finally:
        metrics.close()
