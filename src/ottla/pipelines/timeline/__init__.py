"""Timeline: who led and followed each partition and when, from all brokers' state-change logs.

`lines` and `journals` say what one line means, `read` makes a table of events of files on Spark,
`clocks` puts the brokers' clocks in agreement, `terms` and `findings` are the rules for one
partition, `job` runs them for all, `outputs`, `report` and `picture` show the result. Nothing is
asked of a broker. Kafka: `StateChangeLogMerger` (removed in 4.0), which merges and filters but
draws no conclusion, and of today's lines reads none: it knows `[t,0]`, not `t-0`.
"""

if __name__ == "__main__":  # spark-submit runs this file
    import sys

    from ottla.pipelines.timeline.command import main

    sys.exit(main())
