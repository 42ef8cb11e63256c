"""What may be said, and when: states, rules, acknowledgements and heart-beats of both sides. Pure: no clock."""
