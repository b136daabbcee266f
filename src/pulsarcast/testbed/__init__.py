"""Many real nodes on one machine: workloads, kills, measuring, and others to compare with.

One parent process (`fleet`) forks a process for each node and drives them all through control
sockets (`messages`, `child`). What was published and who got it stands in memory that all of them
share (`ledger`). What a node is made of is the contestant's business (`contestants`).
"""
