"""One live session with a broker: threads, locks, receipts, flow. A link dies once and is never reborn."""
