"""Where each node of a fleet stands, and what is to be done about it."""
