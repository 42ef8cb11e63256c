"""Two ready pipelines: a destination into Parquet files, and those files back to a destination.

::

    archive.py    destination → Parquet by date, messages that cannot be read kept apart
    replay.py     Parquet → destination, in order, resumable, by rate and filter; without Spark
    progress.py   what a terminal shows meanwhile, and the summary at its end
"""
