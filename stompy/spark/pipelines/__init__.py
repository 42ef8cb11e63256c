"""Two ready pipelines: a destination into Parquet files, and those files back to a destination.

::

    archive.py    destination → Parquet by date, messages that cannot be read kept apart
    replay.py     Parquet → destination, resumable, by rate and filter
    batches.py    what both do with a micro-batch: name it for good, count it
    progress.py   what a terminal shows while a query runs, and the summary at its end
"""
