"""Commands: what is typed, checked and printed; one module for each group of commands.

Who may call: `admin.cli`. Invariants: a command parses and prints; what it does to a cluster is in
`operations`.
"""
