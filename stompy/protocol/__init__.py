"""The rules of a session for both sides: states, headers, acknowledgements, heartbeats. Pure: no clock, no I/O."""
