"""Commands: what is typed, checked and printed; one module for each group of commands.

Invariants: a command parses and prints; what it does to a cluster is in `operations`.
"""
