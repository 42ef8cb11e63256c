"""`stompy migrate`: what a program uses of stomp.py, and what to write instead."""
