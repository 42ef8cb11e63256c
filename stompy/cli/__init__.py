"""The `stompy` command."""
