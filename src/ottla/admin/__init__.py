"""Admin: the command line, the operations behind it, and the cluster on this machine.

`commands` parses arguments and prints results. `operations` speaks Kafka's protocol through
`client` alone, so it works with any Kafka. `local` and the demo start and stop real processes.
None of them imports a server. Every error is one line that names the thing, the reason and the way
out. Begin with `cli.py`.
"""
