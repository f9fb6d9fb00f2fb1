"""A legal model → the model that each of several RDUs executes, with the collectives between them."""
