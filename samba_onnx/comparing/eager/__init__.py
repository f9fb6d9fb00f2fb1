"""What eager torch computes of a module, of each of its operators, and of a step of its optimizers."""
