"""How bytes travel: addresses, and reliable two-way byte streams over TCP or inside one process. Knows no STOMP."""
