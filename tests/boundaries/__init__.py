"""How often architectures of ``transformers`` pass between RDU and CPU, before and after fallbacks were written otherwise."""
