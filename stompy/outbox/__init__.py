"""The store-and-forward outbox: messages wait in one SQLite file until the broker has confirmed them."""
