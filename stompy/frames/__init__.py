"""Frames on the wire: headers, the grammar of each version, parser and encoder. Pure: no clock, no I/O, no lock."""
