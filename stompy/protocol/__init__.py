"""The rules of a session for both sides: states, headers, acknowledgements, heart-beats. Pure: no clock, no I/O."""
