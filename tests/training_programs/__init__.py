"""Training programs in the styles of many people: each in plain torch, and on the device from the same seed."""
