"""Long-running workers: tasks, retries, dead letters, signals, child processes."""
