"""R17: a name may have several addresses, IPv6 among them; one that does not refuse is enough."""

import asyncio
import socket

import pytest

from ottla.net.runtime import RealNetwork

IN_TIME_S = 10.0
V4, OTHER_V4, V6 = "127.0.0.1", "127.0.0.2", "::1"


def bound(address, port=0):
    """Return a socket that has a port and does not listen: its port refuses, and stays so."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.bind((address, port))
    except OSError:
        made.close()
        raise
    return made


def row(*addresses):
    """Return sockets of one port at several addresses."""
    for _ in range(20):
        made = [bound(addresses[0])]
        try:
            made += [bound(a, made[0].getsockname()[1]) for a in addresses[1:]]
        except OSError:  # somebody has that port there
            for one in made:
                one.close()
        else:
            return made
    raise AssertionError(f"no port is free at all of {addresses}")


def refuses(sockets):
    """Ask for a name that resolves to the addresses of these sockets."""
    found = [(s.family, s.type, s.proto, "", s.getsockname()) for s in sockets]

    async def resolved(*_args, **_options):
        return found

    async def main():
        asyncio.get_running_loop().getaddrinfo = resolved
        port = sockets[0].getsockname()[1]
        return await RealNetwork().refuses("some-name", port, timeout_s=IN_TIME_S)

    return asyncio.run(main())


def has_v6():
    try:
        bound(V6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    "addresses",
    [
        (V4, OTHER_V4),
        pytest.param((V4, V6), marks=pytest.mark.skipif(not has_v6(), reason="no IPv6 here")),
    ],
    ids=["two-of-ipv4", "ipv4-and-ipv6"],
)
@pytest.mark.parametrize("listens", [0, 1], ids=["the-first-listens", "the-second-listens"])
def test_r17_all_addresses_of_a_name_refuse_or_it_is_no_proof(addresses, listens):
    sockets = row(*addresses)
    try:
        assert refuses(sockets)
        sockets[listens].listen()
        assert not refuses(sockets)
        assert not refuses(sockets[::-1])
    finally:
        for one in sockets:
            one.close()
