"""How peers behave, without IO: inputs in, effects out (design 4)."""
