"""The state of each node of a fleet, and what to do about it."""
