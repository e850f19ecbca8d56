import trainer


class Training(trainer.Training):
    def load(self, state):
        super().load(state)
        for group in self.optimizer.param_groups:
            group["lr"] = trainer.RATE


trainer.run(make=Training)
