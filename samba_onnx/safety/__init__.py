"""What stands between a file from outside and native code: files, limits, checks and the sandbox.

Nothing here trusts a name, a size or a number that it reads:

- ``files`` opens only regular files, never follows a model's paths out of its folder, and replaces
  results atomically;
- ``graph_checks`` decides in Python whether a ``ModelProto`` may be shown to native code;
- ``system`` knows what operating systems lack, and what takes its place;
- ``sandbox`` runs what may crash, hang or grow in a child process with limits;
- ``sample_inputs`` makes the seeded inputs of a trial run.
"""
