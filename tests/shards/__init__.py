"""The shards: placement, operations, what stands around them."""
