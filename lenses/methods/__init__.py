"""One file a lens; `lenses.registry` lists them."""
