"""Models of PyTorch's as sources of a compilation: made, exported, compared with eager torch."""
