"""Receivers: each fills a spool from a broker with a connection and a thread; all share one writer.

::

    health.py     the state of one receiver, and waiting for a change of it
    receiver.py   the loop of one receiver
    pool.py       the receivers of a spool, as threads of this process
    process.py    the receivers of a spool, in a separate process
"""
