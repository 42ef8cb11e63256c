"""The ways of real brokers, one file each; the facts are those that `docs/reference/brokers.md` records."""
