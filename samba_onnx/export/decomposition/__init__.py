"""Decomposition: ATen operators written with others before a graph is differentiated or translated."""
