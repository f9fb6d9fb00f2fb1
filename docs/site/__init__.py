"""The documentation as a site, which also opens from a folder: ``python -m docs.site`` builds it."""
