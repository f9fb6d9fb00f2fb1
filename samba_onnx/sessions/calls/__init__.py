"""What a session can be asked, by subject: each call whole, with its documentation, and handed to the part that does it."""
