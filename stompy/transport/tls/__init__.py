"""TLS over another transport: settings, contexts, sessions, dialer and listener, error messages."""
