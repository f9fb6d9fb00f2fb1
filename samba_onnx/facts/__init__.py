"""What everybody may ask and nobody else may state: operators, names, tolerances, data types.

Every module here is a table with functions that read it. Nothing in this room imports another
room but the errors, and no library that takes time to load.
"""
