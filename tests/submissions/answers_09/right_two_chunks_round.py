# base: solution
"""ZB-V, by its formula, as the shortest step; deadlocks by advancing everybody at once."""


# %% shortest_step
def shortest_step(num_stages, num_microbatches, most_held):
    steady = max(num_microbatches - num_stages, num_stages - 1)

    def order(stage):
        early = num_stages - stage
        work = (2 * early - 1) * ["F0"] + stage * ["F1", "F0"] + early * ["F1", "I1", "W1"]
        work += steady * ["F0", "I0", "W0", "F1", "I1", "W1"] + stage * ["I0", "I1"] + early * ["I0", "W0"]
        work += stage * ["W1"] + stage * ["W0"]
        where = [work[:place].count(word) for place, word in enumerate(work)]
        return [f"{word[0]}{m}.{word[1]}" for word, m in zip(work, where) if m < num_microbatches]

    return "v", [order(stage) for stage in range(num_stages)]
