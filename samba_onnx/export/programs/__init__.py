"""Programs: graphs of a module and its optimizers go in, a program for the compiler comes out."""
