"""The image, the compose file and the manifest: read, run as a container's first process, and run as a whole stack.

Three needs, from none to most:

- `test_files`, `test_health`, `test_orphans` need nothing.
- `test_first_process` needs a PID namespace (`unshare`, from util-linux): root, or a kernel that gives one to users.
- `test_stack` needs a Docker engine and the images; `.ci/containers` brings both and says so in HEADROOM_DOCKER.
"""
