"""What `sepal` can do, one file a command: doors that turn what was typed into settings, call, and give an exit code.

Heavy imports wait inside the functions, so that help comes at once.
"""
