"""Ways to tell people what the keeper did: one file each, which declares itself as `NOTIFIER`."""
