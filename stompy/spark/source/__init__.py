"""The source: a spool as a stream of Spark, and a queue as a table.

::

    offsets.py    how far a query is, as Spark keeps it in its checkpoint       admission.py   how much a micro-batch
    takes pieces.py     which rows a task reads                                       reading.py     reading them, on an
    executor engine.py     what the driver's Python does for a streaming query           stream.py      the same as
    pyspark calls it drain.py      what a task of a batch read does                              batch.py       the same
    as pyspark calls it signals.py    the end by SIGTERM

Only `stream.py` and `batch.py` import pyspark.
"""
