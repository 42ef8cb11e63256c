"""Receivers: from a broker into a spool, each with a connection and a thread, and one writer for all.

::

    health.py     whether one receives, for those who wait for its messages
    receiver.py   the loop of one receiver
    pool.py       the receivers of a spool, as threads of this process
    process.py    the same in a process of its own
"""
