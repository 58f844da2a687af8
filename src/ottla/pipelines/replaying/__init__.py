"""The job `replay`, and `mirror`, its continuous form: records of one topic to another, once each.

`origins` names where a record came from, `transactions` writes, `progress` keeps how far a job got,
`copying` is a task, `checking` reads both topics again.
"""
