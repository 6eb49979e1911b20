"""What people and programs read of a campaign. Judges nothing and touches no files."""
