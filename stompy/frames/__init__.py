"""What is on the wire: frames, headers, the grammar of each version, and the codec. Pure: no clock, socket or lock."""
