"""Rows to a broker: what `df.write.format("stomp")` and `df.writeStream.format("stomp")` do.

::

    columns.py    which columns a row has and what they say of a message; needs neither pyspark nor pyarrow
    identity.py   the id by which a consumer knows a copy, the same each time a row is sent
    publisher.py  messages to the broker, in transactions, each confirmed; a limit on their rate
    writer.py     what Spark calls in the executors and on the driver

A partition is sent by one connection, made at its first row, in chunks of one transaction each. A chunk is confirmed by
the receipt of its COMMIT before the next one begins, so of a task that dies at most the last chunk is in doubt.
"""
