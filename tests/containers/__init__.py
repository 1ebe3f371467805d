"""The image, the compose file and the manifest: read, and run as a whole stack.

Two needs:

- `test_files`, `test_health`, `test_orphans` need nothing.
- `test_stack` needs a Docker engine and the images; `.ci/containers` brings both and says so in HEADROOM_DOCKER.

A worker as a container's first process is in `tests/life/test_first_process.py`, and needs no image.
"""
