"""Models as other tools write them, each converted, verified and held to a table."""
