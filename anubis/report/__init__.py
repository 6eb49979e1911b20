"""Tables, pages and documents about campaigns, for people and programs. Nothing here judges or
touches files."""
