"""Explain: why the cluster is as it is, and whether the rules of today would decide the same.

Who may call: `ottla.__main__`. Everything here works offline on journals that controllers wrote.
The room imports, of the controller, only deciders and the name of the file: what it runs again is
the very code that decided. `lines` says what a journal holds, `journals` finds and merges them,
`picture` folds them into the cluster's state, `story` tells of one partition, `again` replays.
"""
