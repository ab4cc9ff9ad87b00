"""Do servers of the same blocks give the same answers? What is asked, what is kept of an answer, and what several of them say."""
