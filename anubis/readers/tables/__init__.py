"""What other tools measured: tables of any shape, by a mapping, as campaigns."""
