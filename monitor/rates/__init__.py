"""What servers really give: probed by the crawl worker, told by clients; evidence against what they report of themselves."""
