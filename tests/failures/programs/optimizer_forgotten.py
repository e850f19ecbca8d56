import trainer


class Training(trainer.Training):
    def load(self, state):
        super().load(state | {"optimizer": self.optimizer.state_dict() | {"state": {}}})


trainer.run(make=Training)
