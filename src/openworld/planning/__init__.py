"""From a request to a run: what the settings are, what fits into the time, what is told, features first, class count.

May import anything but commands, results and the interfaces in Python. Everything that trains goes through
`request.carry_out`.
"""
