"""The source: a spool as a stream of Spark, and a queue as a table.

::

    offsets.py   how far a query is, as Spark keeps it in its checkpoint
    reading.py   which rows a task reads, and reading them, on an executor
    engine.py    what the driver's Python does for a streaming query
    stream.py    the same as pyspark calls it
    drain.py     what the driver's Python does for a batch read
    batch.py     the same as pyspark calls it
    signals.py   the end by SIGTERM

Only `stream.py` and `batch.py` import pyspark.
"""
