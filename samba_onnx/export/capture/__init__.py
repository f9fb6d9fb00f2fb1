"""Capture: a torch module goes in, a functional graph of ATen operators comes out."""
