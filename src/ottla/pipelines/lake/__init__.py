"""Topics to tables of Delta Lake or Iceberg, each record exactly once.

The table's own commit carries the offsets of the rows in it (`state`): there is no other
checkpoint. `command` is the job, `landing` one topic of it, `writing` what its tasks do, `tables`
what it asks of a table, which `delta` and `iceberg` do by their libraries.
"""

if __name__ == "__main__":  # handed to spark-submit as a file
    import sys

    from ottla.pipelines.lake.command import main

    sys.exit(main())
