"""Differentiation: a captured module goes in, forward and backward graphs come out."""
