"""The transport: carries out the router's decisions."""
