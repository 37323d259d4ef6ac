"""Tasks beyond the forecast: each frame is answered from its own observation."""
