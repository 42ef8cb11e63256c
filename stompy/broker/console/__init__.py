"""The console: a page that shows the broker, and the calls that it makes."""
