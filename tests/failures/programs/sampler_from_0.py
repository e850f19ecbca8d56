import trainer


class Training(trainer.Training):
    def load(self, state):
        super().load(state)
        self.position = 0


trainer.run(make=Training)
