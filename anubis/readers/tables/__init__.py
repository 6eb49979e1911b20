"""Tables of other tools' measurements, of any shape, by a mapping, as campaigns."""
