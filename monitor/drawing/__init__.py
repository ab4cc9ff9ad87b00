"""Pictures as a few SVG paths, one a level, however much they show. Pure; knows coordinates, and neither colours nor words."""
