"""Fleets and clusters that exist in memory only."""
