"""The page of a report: one HTML file that needs neither network nor script to be read."""
