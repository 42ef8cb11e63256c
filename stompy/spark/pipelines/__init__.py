"""Two complete pipelines: archive a destination in Parquet files, and replay those files to a destination.

::

    archive.py    destination → Parquet by date, with invalid messages in a separate folder
    replay.py     Parquet → destination, in order, resumable, with rate limit and filter; without Spark
    progress.py   the progress line on a terminal, and the summary at the end
"""
