"""Sections by pattern: rules of fusion, where they match, and what is left to be a section of its own."""
