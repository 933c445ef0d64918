"""The instance: computes dataflows and keeps shards for a controller."""
