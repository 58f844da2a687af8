"""The jobs `replay` and `mirror`: a topic into another by source and sink of `format("ottla")`.

`state` is what a job keeps on the target's cluster, `rows` says what is copied, `rounds` copies and
checks, `checking` compares both topics, `offset_map` and `translating` say where records went.
"""
