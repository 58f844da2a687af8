"""Requests per second of an echo dispatch over loopback, small frames pipelined.

Run: `python benchmarks/bench_net.py [--seconds 3] [--size 100] [--depth 64] [--plain]`. The client
runs in a process of its own; the figure of interest is requests per CPU second of the server.
"""

import argparse
import asyncio
import multiprocessing
import os
import socket
import struct
import time

from ottla.log.files import OsFiles
from ottla.net import runtime
from ottla.net.server import Server, ServerLimits


def client(port, size, depth, seconds):
    body = b"\x00\x03\x00\x01" + bytes(size - 4)
    burst = (struct.pack(">i", size) + body) * depth
    deadline = time.monotonic() + seconds
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while time.monotonic() < deadline:
            sock.sendall(burst)
            left = len(burst)
            while left:
                left -= len(sock.recv(min(left, 1 << 20)))


async def serve(args):
    count = 0

    def echo(_connection, frame):
        nonlocal count
        count += 1
        return (frame,)

    limits = ServerLimits(max_frame_bytes=64 << 20)
    server = Server(runtime.real_world(OsFiles()), "127.0.0.1", 0, echo, limits)
    await server.start()
    peers = [
        multiprocessing.get_context("spawn").Process(
            target=client, args=(server.port, args.size, args.depth, args.seconds)
        )
        for _ in range(args.clients)
    ]
    for peer in peers:
        peer.start()
    while not count:  # noqa: ASYNC110 - the figure starts with the first request
        await asyncio.sleep(0.01)
    began, cpu, first = time.monotonic(), time.process_time(), count
    while any(peer.is_alive() for peer in peers):  # noqa: ASYNC110 - processes
        await asyncio.sleep(0.05)
    wall, cpu, done = time.monotonic() - began, time.process_time() - cpu, count - first
    print(
        f"loop={type(asyncio.get_running_loop()).__module__} size={args.size} "
        f"depth={args.depth} clients={args.clients} requests={done} per_s={done / wall:.0f} "
        f"per_cpu_s={done / cpu:.0f} mb_per_cpu_s={done * args.size / cpu / 1e6:.0f} "
        f"load={os.getloadavg()[0]:.1f}"
    )
    await server.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--depth", type=int, default=64)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--plain", action="store_true", help="asyncio's own loop")
    args = parser.parse_args()
    if args.plain:
        asyncio.run(serve(args))
    else:
        runtime.run(serve, args)


if __name__ == "__main__":
    main()
