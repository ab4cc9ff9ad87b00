"""Each past day of the history as one file, so that nobody needs to scrape pages."""
