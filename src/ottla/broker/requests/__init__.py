"""Requests: from a frame to its response. `router` is the way in, `routes` lists what is served.

The folders have the handlers, by family: `records` (produce, fetch and whatever asks a log),
`groups`, `transactions`, `topics`, `configs`, `cluster`, and `control` (what controller and brokers
ask of each other). Each handler has the shape `handle(server, conn, header, request)`; it is plain
and quick, and returns the parts of a response, a `Pending` when the response comes later, or None
when none is due. The router calls them, nothing else does.
"""
