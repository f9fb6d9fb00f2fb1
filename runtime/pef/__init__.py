"""The bundle format: one page-aligned zip file that holds a compiled model (``docs/pef.md``)."""
