"""Do servers of the same blocks give the same answers? What is asked, what is kept of an answer, what several come to."""
