"""Audit: what producers sent, what the log holds, and what the lake holds, by ten minutes.

`reading` makes rows of the log and of the lake, `sums` adds them up on Spark, `judging` says what
is wrong.
"""
