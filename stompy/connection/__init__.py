"""The public objects: connections, subscriptions, messages, transactions. A connection outlives its links."""
