"""What is described before it runs: frozen records, and for each kind of plan one interpreter.

An interpreter judges any plan, right or wrong: it yields facts (times, messages, memory) and faults in words. Right
plans stand in labkit.plans.reference and nowhere else.
"""
