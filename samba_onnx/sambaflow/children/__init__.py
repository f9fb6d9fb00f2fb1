"""What is on the path of the processes that a SambaFlow program starts, so that they find ``sambaflow``.

They are fresh interpreters, in which nobody has called ``install``: those of ``multiprocessing`` that
are spawned, as the workers of a DataLoader may be, and those that run ``sys.executable``. This folder
holds one package and nothing else, which is read only when a process imports ``sambaflow``.
"""

__all__: list[str] = []
