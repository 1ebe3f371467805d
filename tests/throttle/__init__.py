"""The model, the operations and the fleet, on real servers."""
