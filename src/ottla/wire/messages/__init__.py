"""One module per family of `broker.requests`: the schema of each of its messages, as text.

The request and response classes are made from it at their first use; `ottla.wire.apis` says which
API is where. Types for checkers are in the `.pyi` beside each module, written by
`python -m ottla.wire.stubs`.
"""
