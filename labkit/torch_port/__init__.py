"""The one door to torch's private parts: every name that its documentation does not promise, and one process group."""
