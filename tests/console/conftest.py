"""A console on a cluster in threads: what gets its pages and sends its forms."""

import pytest

from ottla.testing.sync_cluster import SyncCluster
from support.console import console_on, form_token


@pytest.fixture(scope="module")
def cluster():
    with SyncCluster(1, in_process=True) as found:
        yield found


@pytest.fixture(scope="module")
def page(cluster):
    """Return what gets a page as text; its status must be `status`."""
    with console_on(cluster.bootstrap) as http:

        def get(path, status=200, **fields):
            response = http.get(path, params=fields or None, follow_redirects=True)
            assert response.status_code == status, (path, response.text)
            return response.text

        def post(path, status=200, fields=()):
            token = form_token(http)
            pairs = [*(fields.items() if hasattr(fields, "items") else fields)]
            data = {"form_token": token}
            for name, value in pairs:
                data.setdefault(name, []).append(value)
            response = http.post(path, data=data, follow_redirects=True)
            assert response.status_code == status, (path, response.text)
            return response.text

        get.post, get.http, get.console = post, http, http.console
        yield get
