"""Text and files from outside: node lists, strict reading, limits, places."""
