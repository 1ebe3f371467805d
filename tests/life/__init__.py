"""Proofs of a pod's life with real processes, which take minutes: a step of their own in .ci/run."""
