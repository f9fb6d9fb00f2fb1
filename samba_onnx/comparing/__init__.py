"""One judge: what is expected of results, by whom, how far they may be off, and where they first differ."""
