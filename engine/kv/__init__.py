"""The paged KV cache: blocks, sharing, swapping and its integrity."""
