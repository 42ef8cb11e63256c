"""`stompy demo`: each feature of the library, shown on the embedded broker."""
