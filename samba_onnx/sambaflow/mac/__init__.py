"""``sambaflow.mac``: what programs hand to the middle part of the vendor's compiler."""

__all__: list[str] = []
