"""The source: a spool as a stream of Spark, and a queue as a table.

::

    reading.py   splitting messages into tasks, and reading them on an executor
    engine.py    the driver's side of a streaming query: offsets, limits, plans
    stream.py    the interface of pyspark to that engine
    drain.py     the driver's side of a batch read

Only `stream.py` imports pyspark.
"""
