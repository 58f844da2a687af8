"""The room `log`: partitions' logs on disk, in Kafka's files, byte for byte.

`log.Log` is one partition's log, `manager.LogManager` all of a broker's. Everything is
synchronous; what must wait for a disk (fsync) is handed out as a job for a worker. The deciders
`epochs`, `producers`, `retention`, `compaction` and `validate` touch no file. Record batches stay
memoryviews from the socket to the file, and hot reads are answered from the tail cache.

`cleaner.LogCleaner` compacts logs beside all that, in slices of a few milliseconds.

Not here yet: moving a replica between log dirs, tiered storage.
"""
