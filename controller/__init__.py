"""The controller: the durable log, sessions to replicas, the gRPC API for adapters."""
