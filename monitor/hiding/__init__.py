"""Who is not shown: names that were hidden, peers that opted out. Hiding changes what is told, never what is counted."""
