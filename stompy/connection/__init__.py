"""What users hold: connections, subscriptions, messages, transactions. A connection outlives its links."""
