"""F45: connections are counted against the descriptors there are, and refusals said seldom."""

from ottla.net.limits import ConnectionQuotas


def admitted(connection_quotas, ip, count):
    return sum(connection_quotas.admit(ip) is None for _ in range(count))


def test_connections_end_before_descriptors_do():
    connection_quotas = ConnectionQuotas(10_000, 1_000, 400)
    assert admitted(connection_quotas, "10.0.0.1", 500) == 300, (
        "one address is not to take them all"
    )
    assert admitted(connection_quotas, "10.0.0.2", 500) == 100
    assert "open files limit" in connection_quotas.admit("10.0.0.3")
    connection_quotas.leave("10.0.0.1")
    assert connection_quotas.admit("10.0.0.3") is None


def test_settings_below_the_descriptors_count_as_they_are():
    connection_quotas = ConnectionQuotas(50, 40, 400)
    assert admitted(connection_quotas, "10.0.0.1", 60) == 40
    assert "max.connections.per.ip=40" in connection_quotas.admit("10.0.0.1")
    assert admitted(connection_quotas, "10.0.0.2", 60) == 10
    assert "max.connections=50" in connection_quotas.admit("10.0.0.2")
    connection_quotas.limit(10_000, 1_000)  # set anew while the broker runs: the descriptors stay
    assert admitted(connection_quotas, "10.0.0.3", 1_000) == 300
    assert connection_quotas.total == 350


def test_refused_connections_are_logged_once_a_minute(bench, run, caplog):
    async def main():
        at = await bench(lambda c, f: [b""], max_connections=3).start()
        taps = [at.connect() for _ in range(3)]
        for tap in taps:
            tap.receive(bytes([0, 0, 0, 1, 0]))  # or they would make room for later ones
        taps += [at.connect() for _ in range(47)]
        assert sum(tap.closing for tap in taps) == 47
        at.later(59)
        at.connect()
        assert at.server.refused_count == 48
        at.later(2)
        at.connect()

    run(main)
    lines = [r.getMessage() for r in caplog.records if "refused" in r.getMessage()]
    assert len(lines) == 2
    assert "count=1 " in lines[0]
    assert "count=48 " in lines[1]
    assert "max.connections=3" in lines[1]
