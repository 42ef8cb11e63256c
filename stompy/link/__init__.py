"""One session with a broker: threads, locks, receipts, flow control. A link is never reopened."""
