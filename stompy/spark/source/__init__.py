"""The source: a spool as a stream of Spark, and a queue as a table.

::

    offsets.py     positions in a spool, compared with it before they are used, and lost messages
    admission.py   how many messages a micro-batch gets, and how its tasks share them
    engine.py      the driver's side of a streaming query, which brings them together
    drain.py       the driver's side of a batch read
    reading.py     reading messages on an executor

Only `datasource.py` imports pyspark.
"""
