"""Routes, one module for each family of them."""
