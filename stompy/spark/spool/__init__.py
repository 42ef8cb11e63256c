"""The spool: messages of a broker as files, durable before they are acknowledged; needs pyarrow, never pyspark.

::

    names.py     how a file's name says what is in it           state.py    small checked documents (watermarks)
    files.py     the seam to a file system; a local directory   remote.py   object stores, through pyarrow or fsspec
    record.py    one message as a row                           segment.py  rows to and from an Arrow file
    index.py     which segments make up a lane, without gaps    claims.py   who may write: epochs, the fence, the lock
    suspects.py  messages that the broker may deliver again     lane.py     the one writer of a lane
    view.py      a reader of a lane                             spool.py    the folder as a whole

A spool has lanes, each filled by one receiver: `spool.json` says whose it is, `lane-0/` holds `seg-*.arrow` files, the
watermarks `low` (everything below was processed and removed), `planned` (handed out to Spark) and `settled` (the broker
has confirmed the acknowledgement, or the id is among the suspects), the claims under `epoch/` and the ids under
`suspects/`. The listing of a lane is its only index.
"""
