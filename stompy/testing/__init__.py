"""For tests of programs that use stompy: a TCP proxy that fails on demand, a recording listener, pytest fixtures."""
