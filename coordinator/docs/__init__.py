"""What the site says about itself: its API, and how it measures. Figures come from the code's own constants.

jobs.py        which call is for which job, as lines that run
reference.py   the OpenAPI document as pages show it
measures.py    what is looked at, how often, what each word means, what is not known
views.py       doors
"""
