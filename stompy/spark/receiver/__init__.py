"""Receivers: from a broker into a spool, one connection and one thread a lane.

::

    health.py     whether it receives, for those who wait for its messages
    group.py      some messages that become durable and are acknowledged together
    receiver.py   the loop of one lane
    crew.py       the receivers of a spool, as threads of this process
    process.py    the same as processes of their own
"""
