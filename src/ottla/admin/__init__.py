"""Admin: people asking the cluster something, and the cluster on a person's own machine.

Two halves. The client half (`topics`, `produce`, `consume`, `status`) speaks the wire through
`net.client` alone, so it works with any Kafka. The machine half (`cluster_dir`, `processes`,
`local_cluster`, the demo) starts and stops real processes. Neither looks into a server; whatever
goes wrong is one line that names the thing, the reason and the way out. Begin with `cli.py`.
"""
