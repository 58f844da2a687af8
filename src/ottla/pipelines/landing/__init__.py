"""Landing: the parts of the lake job; `ottla.pipelines.lake` puts them together.

A table is one topic's folder. `offsets` decides what a batch takes, `records` reads it, `parsing`
splits it into rows and dead letters, `counting` holds what was written against what was planned,
`table` binds and commits; `delta_log` writes the versions of a Delta table after that.
"""
