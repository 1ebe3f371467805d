"""A whole fleet on one machine: servers, worker pods, beat and Flower as real processes.

The demonstration, the benchmarks and the tests all need the same thing: real processes that are
started together, watched, killed on purpose, and surely ended. It is written once, here, so that
what a person sees in the demonstration is what the tests exercise.
"""
