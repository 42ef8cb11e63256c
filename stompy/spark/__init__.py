"""The data pipeline: STOMP as a source and a sink of Spark.

::

    spool/       messages as files, durable before they are acknowledged; pyarrow, no pyspark
    schema.py    the columns of a message, for Spark and for Arrow
"""
