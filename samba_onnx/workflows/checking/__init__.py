"""What a comparison of an exported program can come to, and who is to blame where it stops."""
