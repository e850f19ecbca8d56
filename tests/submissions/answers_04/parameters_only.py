# base: solution
"""3.1 forgets the buffers, and everything that begins with it does too."""


# %% broadcast_module
def broadcast_module(module):
    with torch.no_grad():
        for parameter in module.parameters():
            dist.broadcast(parameter, src=0)
