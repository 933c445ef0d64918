"""The storage half of an instance: what fills shards, and who reads them."""
