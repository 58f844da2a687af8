"""One module per API: its schema as text, and the request and response classes made from it.

Importing this package imports none of them; `ottla.wire.codec` imports a module at the first use
of its key. Types for checkers stand in the `.pyi` beside each module, written by
`python -m ottla.wire.stubs`.
"""
