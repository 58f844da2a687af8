"""`format("ottla")` as a sink: rows of Spark to topics, in batches and in streams, exactly once.

`options` checks what the user asks for, `encoding` turns Arrow columns into record batches,
`committing` ends the tasks' transactions as one, `writer` is what Spark calls.
"""
