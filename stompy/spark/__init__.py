"""The data pipeline: STOMP as a source and a sink of Spark.

::

    registering.py      register(spark), session(): register the format "stomp", with clear errors
    datasource.py       the data source behind format("stomp"): pyspark's interface to source and sink
    monitoring.py       metrics of a query, and the cause of a failure
    archiving.py        destination → Parquet by date, with invalid messages in a separate folder
    replaying.py        Parquet → destination, in order, resumable, with rate limit and filter; without Spark
    source/             a spool as a stream, a queue as a table
    sink/               rows as messages
    receivers.py        receivers, which fill a spool from a broker
    spool/              messages as files, durable before they are acknowledged; needs pyarrow, but not pyspark
    schema.py           the columns of a message, for Spark and for Arrow
    options.py          parsing and documenting options
    option_tables.py    the options of source and sink, and connecting with them
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stompy.spark.archiving import Archive as Archive
    from stompy.spark.archiving import Body as Body
    from stompy.spark.archiving import archive as archive
    from stompy.spark.monitoring import cause as cause
    from stompy.spark.monitoring import watch as watch
    from stompy.spark.registering import register as register
    from stompy.spark.registering import session as session
    from stompy.spark.replaying import Selection as Selection
    from stompy.spark.replaying import replay as replay

_LAZY = {
    "stompy.spark.archiving": "Archive Body archive",
    "stompy.spark.monitoring": "cause watch",
    "stompy.spark.registering": "register session",
    "stompy.spark.replaying": "Selection replay",
}

if not TYPE_CHECKING:
    from stompy.exports import late

    __getattr__, __dir__ = late(__name__, _LAZY)
