# base: solution
# loses: parallel_apply
"""Threads that are joined as soon as they are started, and errors that only print."""


# %% parallel_apply
def parallel_apply(replicas, inputs):
    outputs = []

    def apply(number):
        outputs.append(replicas[number](**inputs[number]))

    for number in range(len(replicas)):
        thread = threading.Thread(target=apply, args=(number,))
        thread.start()
        thread.join()
    return outputs
