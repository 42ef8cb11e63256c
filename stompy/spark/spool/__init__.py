"""The spool: messages of a broker as files, durable before they are acknowledged; needs pyarrow, never pyspark.

::

    files.py       a directory: atomic files, locks, and small checked documents (marks)
    record.py      one message as a row, and its identity
    redelivery.py  what the broker may redeliver, in memory and on disk
    index.py       which segments make up a spool
    claims.py      who may use it: epochs, fence, lock
    spool.py       the folder as a whole; rows to and from an Arrow file
    peers.py       the other spools of a source
    writer.py      its one writer
    view.py        its reader

`spool.json` identifies the spool. Next to it are `seg-*.arrow` files; the marks `low` (everything below was processed),
`planned` (everything below was given to Spark) and `settled` (for everything below, the broker has confirmed the ACK,
or the id is among the suspects); the claims under `epoch/` and `reader/`; and the ids under `suspects/` and
`redelivered/`. The folder's
listing is the only index.
"""
