"""The kit of the programs: what several of them share, and what only GPUs, HCAs or tools need."""
