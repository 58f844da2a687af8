"""Lag: how far groups were behind, and which of them do not get on.

`commits` reads what coordinators keep in `__consumer_offsets`, `ends` asks where logs ended at
which time, `rules` judges one partition of one group, `history` does so for all on Spark.
"""
