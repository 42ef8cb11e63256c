"""Broker dialects: the portable options of send and subscribe, and how each broker implements them."""
