"""WHAT WAITS ON DISK UNTIL THE BROKER HAS CONFIRMED IT: a store-and-forward outbox in one SQLite file."""
