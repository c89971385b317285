"""JSON shapes, one module per noun."""
