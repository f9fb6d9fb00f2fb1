"""One rule per operator: with which shards it computes, and what they make of its results."""
