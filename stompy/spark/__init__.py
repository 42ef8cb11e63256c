"""The data pipeline: STOMP as a source and a sink of Spark.

::

    session.py          register(spark), session(): register the format "stomp", with clear errors
    datasource.py       what format("stomp") stands for
    causes.py           the one line that says why Spark failed
    source/             a spool as a stream, a queue as a table
    sink/               rows as messages
    receiver/           from a broker into a spool
    spool/              messages as files, durable before they are acknowledged; pyarrow, no pyspark
    schema.py           the columns of a message, for Spark and for Arrow
    options.py          how options are parsed, refused and documented
    broker_options.py   the options that source and sink share, and the connection that they make
    source_options.py   those of the source
    sink_options.py     those of the sink
    building.py         functions that build options, made from those tables
"""

from __future__ import annotations

from stompy.spark.building import options_for_read, options_for_stream, options_for_write
from stompy.spark.causes import cause
from stompy.spark.metrics import watch
from stompy.spark.session import register, session

__all__ = ["cause", "options_for_read", "options_for_stream", "options_for_write", "register", "session", "watch"]
