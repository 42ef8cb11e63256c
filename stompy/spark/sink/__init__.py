"""The sink: sends rows to a broker, for `df.write.format("stomp")` and `df.writeStream.format("stomp")`.

::

    rows.py        rows as messages: their columns, and their dedupe ids
    publisher.py   sending messages in confirmed transactions, with an optional rate limit
    writer.py      the methods that Spark calls in the executors and on the driver

A partition is sent by one connection, opened at its first row, in chunks of one transaction each. The receipt of a
chunk's COMMIT is awaited before the next one begins, so if a task dies, at most the outcome of one chunk is unknown.
"""
