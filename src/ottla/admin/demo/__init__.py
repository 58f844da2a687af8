"""The demo: the main job, end to end, with two brokers killed in the middle of it.

Seven steps (`run.py`): a cluster; a topic; flights produced while Spark lands them in Delta
(`flights_job`), brokers are killed and `watching` looks on; everything read back by another client
and checked (`verifying`); what landed counted by DuckDB; the brokers' files are compared, and the
leaders drawn; one table (`report`). Every module here is a client like any other: nothing looks
into a server.
"""
