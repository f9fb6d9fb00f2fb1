"""What writes the pages of the documentation that are not written by hand; tests hold them current."""
