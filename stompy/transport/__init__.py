"""Byte streams: addresses; TCP, Unix sockets, memory, TLS and proxies. Independent of STOMP."""
