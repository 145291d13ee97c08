"""The server beside others: a trivial model over HTTP and gRPC, and joined requests."""
