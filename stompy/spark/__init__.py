"""The data pipeline: STOMP as a source and a sink of Spark.

::

    session.py          register(spark), session(): register the format "stomp", with clear errors
    datasource.py       the data source behind format("stomp")
    causes.py           the cause of an error of Spark, in one line
    source/             a spool as a stream, a queue as a table
    sink/               rows as messages
    receiver/           receivers, which fill a spool from a broker
    spool/              messages as files, durable before they are acknowledged; needs pyarrow, but not pyspark
    schema.py           the columns of a message, for Spark and for Arrow
    options.py          parsing and documenting options
    broker_options.py   the options that source and sink share, and connecting with them
    source_options.py   the options of the source
    sink_options.py     the options of the sink
    building.py         functions that build options, generated from those tables
"""

from __future__ import annotations

from stompy.spark.building import options_for_read, options_for_stream, options_for_write
from stompy.spark.causes import cause
from stompy.spark.metrics import watch
from stompy.spark.session import register, session

__all__ = ["cause", "options_for_read", "options_for_stream", "options_for_write", "register", "session", "watch"]
