"""Options of a compilation, stated once: what commands, keywords, settings, pages and PEFs are made from."""
