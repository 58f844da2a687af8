"""Explain: why the cluster is as it is, and whether the rules of today would decide the same.

Everything here works offline on journals that controllers wrote. The room imports, of the
controller, only deciders and the journal's schema: what it runs again is the very code that
decided. `lines` reads a journal's lines, `journals` finds and merges the files, `cluster_state`
folds them into the cluster's state, `history` is of one partition, `replay` decides again.
"""
