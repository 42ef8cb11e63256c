"""WebSocket (RFC 6455) over another transport; independent of STOMP."""
