"""Admin: what people type and read: commands, `doctor`, `top`, and the demo.

`commands` has a function for each command, whose parameters are its options; `connection` finds the
cluster that is meant, and `session` asks it by a `client`, which works with any Kafka. Nothing here
imports a server. Every error is one line that names the thing, the reason and the way out. Begin
with `commands/topics.py`.
"""
