# base: solution
"""3.1 forgets the buffers, and everything that begins with it does too."""


# %% 3.1
def broadcast_module(module):
    with torch.no_grad():
        for parameter in module.parameters():
            dist.broadcast(parameter, src=0)
