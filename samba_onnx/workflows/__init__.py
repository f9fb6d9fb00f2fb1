"""What a user asks for as a whole: compile a model, check it, port it, verify it."""
