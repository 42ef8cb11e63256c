"""Real brokers for tests: how they are configured, started and stopped."""
