"""The durable store: how the controller's state survives the controller."""
