"""The source: a spool as a stream of Spark, and a queue as a table.

::

    reading.py   which rows a task reads, and reading them, on an executor
    engine.py    what the driver's Python does for a streaming query, and how far it is
    stream.py    the same as pyspark calls it
    drain.py     what the driver's Python does for a batch read

Only `stream.py` imports pyspark.
"""
