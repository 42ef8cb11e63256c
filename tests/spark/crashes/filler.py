"""What Spark's Python does for a source, without Spark: it has a spool filled, and asks how far it is.

Argument: the options of the source, as JSON.
"""

from __future__ import annotations

import json
import sys
import time

from stompy.spark.option_tables import stream_options
from stompy.spark.source.engine import StreamEngine


def main() -> None:
    engine = StreamEngine(stream_options(json.loads(sys.argv[1])))
    try:
        position = engine.initial()
        while True:
            position = engine.latest(position)
            time.sleep(0.05)
    finally:
        engine.stop()


if __name__ == "__main__":
    main()
