"""Serving with other programs' machinery: `pagella.serve.ray`, which needs `ray[serve]`."""
