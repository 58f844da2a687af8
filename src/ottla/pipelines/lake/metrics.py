"""The job's figures for Prometheus, at http://127.0.0.1:PORT/metrics while it runs.

Invariants: on this machine's own address alone; a thread of its own that ends with the process,
serves one request at a time, and reads a text that the job replaces.
"""

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from ottla.model.errors import StartupError

HOST = "127.0.0.1"
TIMEOUT_S = 5
HELP = {
    "rows_total": ("counter", "rows in the table"),
    "dead_letters_total": ("counter", "dead letters in the table dead"),
    "gap_offsets_total": ("counter", "offsets that hold no record for readers"),
    "lost_offsets_total": ("counter", "offsets that the cluster removed before they landed"),
    "batches_total": ("counter", "committed batches"),
    "lag_offsets": ("gauge", "offsets that have not landed, when the cluster was last asked"),
    "rows_per_second": ("gauge", "rows and dead letters a second in the last batch"),
    "last_commit_seconds": ("gauge", "when the last batch was committed, since 1970"),
}


class Metrics:
    """Figures by topic, and a server of them if it was asked for one."""

    def __init__(self) -> None:
        self._figures: dict[str, dict[str, float]] = {}
        self._text = b""
        self._server: HTTPServer | None = None

    def update(self, topic: str, figures: Mapping[str, float]) -> None:
        """Set figures of a topic, by the names of HELP."""
        self._figures[topic] = {**self._figures.get(topic, {}), **figures}
        self._text = self.text().encode()

    def text(self) -> str:
        """Return all figures in Prometheus' text format."""
        lines = []
        for name, (kind, what) in HELP.items():
            lines += [f"# HELP ottla_lake_{name} {what}", f"# TYPE ottla_lake_{name} {kind}"]
            lines += [
                f'ottla_lake_{name}{{topic="{topic}"}} {figures[name]:.15g}'
                for topic, figures in sorted(self._figures.items())
                if name in figures
            ]
        return "\n".join(lines) + "\n"

    def serve(self, port: int) -> int:
        """Listen on a port (0: any free one); return it. StartupError if it is taken."""
        metrics = self

        class Page(BaseHTTPRequestHandler):
            timeout = TIMEOUT_S

            def do_GET(self) -> None:
                found = self.path == "/metrics"
                body = metrics._text if found else b""
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is called
                """Say nothing: stderr is for the job."""

        try:
            self._server = HTTPServer((HOST, port), Page)
        except OSError as error:
            raise StartupError(f"lake.metrics_port {port}: {error.strerror}") from None
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop answering."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
