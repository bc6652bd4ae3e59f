"""The router: a sharded query that decides where the messages of services go."""
