"""The agent that samples a node, and its sources. No program that measures imports it."""
