"""What differs from broker to broker: the options of send and subscribe, one table of facts a broker, the choice."""
