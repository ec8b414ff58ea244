"""Twelve stories, one a module: Flows to read first and to copy from. The guides in `docs/` tell them."""
