"""The endpoints, a module per resource."""
