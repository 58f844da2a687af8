"""Handlers: one module per API (or per family that shares its rules).

Each has functions of the shape `handle(server, conn, header, request)`, plain and quick, that
return the parts of an answer, a `Pending` when the answer comes later, or None when none is due.
The router registers them; nothing else calls them.
"""
