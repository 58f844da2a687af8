"""Four-letter words: what our server says of itself beside what a real one says.

The same keys in the same order; those that ours does not have are listed with the reason.
"""

import re
import socket

import pytest

from ottla.zookeeper.embedded import start_own_zookeeper, start_zookeeper
from support.cluster import free_ports
from support.own_zookeeper import kazoo
from support.waiting import until

NOT_HERE = {
    r"envi (java\..*|os\.memory\..*)": "of the JVM",
    r"cons (lresp|llat|minlat|avglat|maxlat)": "times are kept for the server, not by connection",
    r"mntr zk_(non_mtls_.*|outstanding_tls_handshake)": "it has no TLS",
    r"mntr zk_connection_drop_probability": "connections are not dropped by chance",
    r"mntr zk_local_sessions": "of an ensemble",
    r"mntr zk_.*": "counters and times within ZooKeeper's own processors, caches and quorum",
}
"""Keys that a real server tells and ours does not. The first pattern that matches counts."""
WORDS = (
    "ruok", "isro", "srvr", "stat", "cons", "conf", "envi", "wchs", "mntr",
)  # fmt: skip
LAST_GAUGE = "mntr zk_non_mtls_local_conn_count"
"""Before it is what a server is; after it what its parts have counted, in a hash's order."""


def word(address: str, text: bytes) -> str:
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), 5) as connection:
        connection.settimeout(5)
        connection.sendall(text)
        parts = []
        while part := connection.recv(4096):
            parts.append(part)
        return b"".join(parts).decode()


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Return the addresses of a server of ours and of a real one that says all of its words."""
    folder = tmp_path_factory.mktemp("words")
    servers = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", "-Dzookeeper.4lw.commands.whitelist=*")
        try:
            servers.append(start_own_zookeeper(folder / "own", free_ports(1)[0]))
            servers.append(start_zookeeper(folder / "real", free_ports(1)[0]))
            yield [server.connect_string for server in servers]
        finally:
            for server in servers:
                server.kill()


def test_four_letter_words(kept_server):
    address = kept_server.connect_string
    with kazoo(address) as client:
        client.ensure_path("/words")
        assert client.server_version() == (3, 9, 0)
        assert word(address, b"ruok") == "imok"
        assert word(address, b"isro") == "rw"
        server = kept_server.zookeeper
        figures = dict(line.split("\t") for line in word(address, b"mntr").splitlines())
        assert figures["zk_server_state"] == "standalone"
        assert int(figures["zk_znode_count"]) == len(server.tree.nodes) + 1

        def srvr():
            return dict(line.split(": ", 1) for line in word(address, b"srvr").splitlines())

        # A session that an earlier test left may end between the two.
        until(lambda: int(srvr()["Zxid"], 16) == server.tree.zxid, 20, "the last zxid is told")
        assert srvr()["Mode"] == "standalone"
        assert f"clientPort={server.port}" in word(address, b"conf")
        assert f"sid={client.client_id[0]:#x}" in word(address, b"cons")
        assert "Clients:" in word(address, b"stat")
        assert word(address, b"srst\0\0") == ""  # not on the list: no request either


def keys(name: str, text: str) -> list[str]:
    """Return the words that stand before values, in their order, each once."""
    if name == "mntr":
        found = [line.partition("\t")[0] for line in text.splitlines()]
    elif name in ("cons", "stat", "srvr"):
        found = re.findall(r"(?m)[(,](\w+)=|^([A-Z].*?):", text)
        found = [inner or outer for inner, outer in found]
    elif name in ("conf", "envi"):
        found = re.findall(r"(?m)^([\w.]+)=|^(\w+:)$", text)
        found = [inner or outer for inner, outer in found]
    else:
        found = [re.sub(r"0x\w+|[\d.:]+\d|\d+|expire at .*", "N", t) for t in text.splitlines()]
    return list(dict.fromkeys(f"{name} {key}" for key in found))


def use(address: str) -> dict[str, str]:
    """Do the same with a server; return what it then says to each word."""
    with kazoo(address) as client:
        client.create("/used", b"12345", ephemeral=True)
        client.get("/used", watch=lambda _: None)
        client.get_children("/", watch=lambda _: None)
        return {name: word(address, name.encode()) for name in WORDS}


@pytest.mark.java
def test_each_word_has_the_keys_of_a_real_server_in_its_order(both):
    ours, theirs = (use(address) for address in both)
    used = set()
    for name, text in theirs.items():
        expected = []
        for key in keys(name, text):
            # Each connection and each session has a line of its own.
            reason = next((pattern for pattern in NOT_HERE if re.fullmatch(pattern, key)), None)
            if reason is None or key in keys(name, ours[name]):
                expected.append(key)
            else:
                used.add(reason)
        assert keys(name, ours[name]) == expected, name
    assert used == set(NOT_HERE)
    gauges = keys("mntr", theirs["mntr"])
    gauges = gauges[: gauges.index(LAST_GAUGE)]
    assert set(keys("mntr", ours["mntr"])) <= set(gauges)
    missing = set(gauges) - set(keys("mntr", ours["mntr"]))
    last = list(NOT_HERE)[-1]
    assert not [k for k in missing if not any(re.fullmatch(p, k) for p in NOT_HERE if p != last)]


@pytest.mark.java
def test_what_is_counted_is_what_a_real_server_counts(both):
    """Of the same requests, words among them."""

    def counted(address: str) -> list[dict[str, str]]:
        with kazoo(address) as client, kazoo(address) as other:
            client.create("/counted", b"12345")
            # Not between the two: of `mntr`, which is long, a real server sends several packets.
            before = mntr(address) | srvr(address)
            for i in range(5):
                client.set("/counted", b"x" * i)
            client.get("/counted", watch=lambda _: None)
            other.get("/counted", watch=lambda _: None)
            client.get_children("/counted", watch=lambda _: None)
            with kazoo(address):
                pass
            client.create("/counted/e", ephemeral=True)
            client.ensure_path("/counted/a/b")
            after = srvr(address) | mntr(address)
            client.delete("/counted", recursive=True)
        return [before, after]

    def mntr(address: str) -> dict[str, str]:
        return dict(line.split("\t") for line in word(address, b"mntr").splitlines() if line)

    def srvr(address: str) -> dict[str, str]:
        return dict(line.split(": ") for line in word(address, b"srvr").splitlines())

    (before, after), (their_before, their_after) = (counted(address) for address in both)
    for name in (
        "Received", "Sent", "zk_znode_count", "zk_watch_count", "zk_ephemerals_count",
        "zk_approximate_data_size",
    ):  # fmt: skip
        ours, theirs = (
            int(b[name]) - int(a[name]) for a, b in ((before, after), (their_before, their_after))
        )
        assert ours == theirs, name
    for name in (
        "num_alive_connections", "global_sessions", "outstanding_requests",
        "last_client_response_size", "auth_failed_count", "server_state",
    ):  # fmt: skip
        assert after[f"zk_{name}"] == their_after[f"zk_{name}"], name


def told_of_watches(address: str) -> str:
    root = "/told"
    with kazoo(address) as client:
        for path in (root, f"{root}/1", f"{root}/2"):
            client.create(path, ephemeral=path != root)
        for path in (root, f"{root}/1"):
            client.get(path, watch=lambda _: None)
        client.get_children(root, watch=lambda _: None)
        return word(address, b"wchs")


@pytest.mark.java
def test_what_is_told_of_watches(both):
    ours, theirs = map(told_of_watches, both)
    assert ours == theirs
    assert ours.startswith("1 connections watching 2 paths")
