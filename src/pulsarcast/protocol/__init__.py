"""How peers behave, without IO: inputs in, effects out (docs/architecture.md, The loop)."""
