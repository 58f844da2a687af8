"""The rebalance job's parts: asking, deciding, staging, writing.

`problem`, `placement`, `hard_goals`, `byte_goal`, `topic_goal`, `leaders`, `staging`, `scoring` and
`deciding` are pure: plain values in and out.
"""
