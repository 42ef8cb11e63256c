"""The data pipeline: STOMP as a source and a sink of Spark.

::

    spool/              messages as files, durable before they are acknowledged; pyarrow, no pyspark
    schema.py           the columns of a message, for Spark and for Arrow
    options.py          how options are parsed, refused and documented
    broker_options.py   the options that source and sink share, and the connection that they make
    source_options.py   those of the source
    receiver/           from a broker into a spool
"""
