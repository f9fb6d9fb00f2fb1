"""One tiny model or more of every ``AutoModel`` class of ``transformers``, converted as its users have it."""
