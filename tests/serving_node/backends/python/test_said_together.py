"""Short batches that are sent ahead and said to be over together: nothing waits for long, nothing runs twice."""

from __future__ import annotations

from serving_node.scheduling.served_model import ServedModel

from .conftest import Models
from .test_life import UNHEALTHY, pid_of

MODEL = """
def initialize(self, args):
    self.folder = args["model_repository"]
    self.output = np.zeros(1, np.float32)

def execute(self, requests):
    array = requests[0].inputs()[0].as_numpy()
    value = int(array[0])
    if value >= 100:
        with open(f"{self.folder}/ran", "a") as ran:
            ran.write(f"{value} ")
    if value == 111:
        while not os.path.exists(f"{self.folder}/go"):
            time.sleep(0.001)
    if value == 166:
        os._exit(3)
    self.output[...] = array  # the same memory for every batch, as careless models do
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", self.output)])]
"""
# So many batches leave one by one, those that come while they run together in one message.
ALONE = [1, 2, 3, 4, 5]


async def trained(models: Models) -> ServedModel:
    """Return a model whose batches are known to be short, so that several are sent ahead."""
    model = await models.load(MODEL)
    for number in range(60):
        assert (await models.ask(model, [number]).array()).tolist() == [number]
    return model


async def test_answers_of_batches_said_together_are_each_ones_own(models: Models) -> None:
    model = await trained(models)
    for _ in range(5):
        asked = [models.ask(model, [number]) for number in range(40)]
        assert [(await one.array()).tolist() for one in asked] == [[number] for number in range(40)]


async def test_an_answer_does_not_wait_for_the_batch_after_it(models: Models) -> None:
    model = await trained(models)
    alone = [models.ask(model, [value]) for value in ALONE]
    first, hangs, last = (models.ask(model, [value]) for value in (6, 111, 7))
    assert [(await one.array()).tolist() for one in (*alone, first)] == [[value] for value in (*ALONE, 6)]
    assert not hangs.responses and not last.responses
    (models.folder / "m" / "go").touch()
    assert (await hangs.array()).tolist() == [111] and (await last.array()).tolist() == [7]


async def test_what_was_begun_fails_with_its_process_and_what_was_not_runs_once(models: Models) -> None:
    model = await trained(models)
    before = pid_of(model)
    values = [100, 101, 102, 103, 104, 105, 166, 106, 107, 108, 109]
    asked = [models.ask(model, [value]) for value in values]
    outcomes = dict(zip(values, [await one.answer() for one in asked], strict=True))
    failed = {value for value, outcome in outcomes.items() if outcome.error}
    assert 166 in failed <= {105, 166}
    assert {outcome.error.message for outcome in outcomes.values() if outcome.error} == {UNHEALTHY}
    ran = (models.folder / "m" / "ran").read_text().split()
    assert ran == [str(value) for value in values], "each began exactly once"
    assert pid_of(model) != before
