"""What all tests share: real servers, real worker processes, waiting, and the look for leaks."""
