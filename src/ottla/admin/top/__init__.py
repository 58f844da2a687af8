"""`ottla top`: a cluster as it changes, on a whole terminal.

`looking` asks the cluster, `changes` compares one look with the next (pure), `screen` draws.
"""
