import trainer


class Training(trainer.Training):
    def load(self, state):
        super().load(state | {"optimizer": state["optimizer"] | {"state": {}}})


trainer.run(make=Training)
