"""The rules, a module for each kind of mistake: each takes what was seen and yields findings."""
