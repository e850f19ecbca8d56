"""The cases points rest on: the student's ranks on one side, the oracle that knows the answers on the other."""
