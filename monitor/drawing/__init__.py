"""Pictures as a few SVG paths, however much they show: one path a level. Pure; knows coordinates, and neither colours nor words."""
