"""Real brokers for tests, in containers or as processes of this machine: how they are configured, started and ended."""
