"""The run of a loop whose steps edit the files of a workspace."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from ..errors import StepError, Stopped, Suspended
from ..records import Iteration, Result, Stop, as_evaluation
from ..records.codec import Json
from .context import Context
from .files import Snapshots, StateSource
from .loop import LoopRun
from .loop_options import LoopDeclaration
from .step import Step

__all__ = ["WorkspaceLoopRun"]


class WorkspaceLoopRun(LoopRun):
    """`LoopRun` with files: put in place, adapt, execute, capture, evaluate, record, decide.

    A class besides `LoopRun`, so that loops without a workspace cost nothing more.
    """

    __slots__ = ("_files",)

    def __init__(
        self,
        loop: LoopDeclaration,
        value: Json,
        ctx: Context,
        own: StateSource | None,
        around: Snapshots | None,
    ) -> None:
        super().__init__(loop, value, ctx)
        if own is not None:
            files = Snapshots(self.run_state, self.path, own)
        else:
            assert around is not None
            files = Snapshots(self.run_state, self.path, around.source, around.state)
        self._files = self.snapshots = files
        self.scope.work_in(files)
        self.call = self._called

    async def run(self) -> Result:
        """Run the loop in its workspace."""
        try:
            if self.ended is None:
                await self._files.begin()
            return await super().run()
        except Suspended:
            await self._files.suspend()
            raise
        except asyncio.CancelledError:
            # Ctrl-C: the person finds the best files, and a resumed run continues from its last step.
            await self._files.interrupt(self.history)
            raise

    async def baseline(self) -> Stop | None:
        """Evaluate the files of the beginning, and put back what the evaluator changed in them."""
        stop = await self._prepare() or await super().baseline()
        replay = self.run_state.replay
        began = replay is not None and replay.began(f"{self.path}/1") is not None
        # Later, a difference is an edit of a person, which the loop adopts.
        if self.loop.baseline and not began and not len(self.history):
            await self._files.put_back()
        return stop

    async def _prepare(self) -> Stop | None:
        """Run the preparations of the evaluator; return the stop if one of them cannot run."""
        loop = self.loop
        if loop.evaluate is None:
            return None
        self.ctx.at(f"{self.path}/0")
        # Equal evaluators share one preparation.
        steps = {step.fingerprint: step for step in loop.evaluate.preparations()}
        for number, (fingerprint, step) in enumerate(steps.items(), start=1):
            name = "prepare" if number == 1 else f"prepare-{number}"
            try:
                value = await self.ctx.call(name, step, None)
            except StepError as error:
                # Before any cost: a check that cannot run on the base cannot judge an output.
                return self.fail(error)
            except (Stopped, asyncio.CancelledError) as error:
                return self.stop(error)
            self.scope.prepare(fingerprint, value)
        return None

    def chosen(self, result: Result) -> Iteration | None:
        """Return the iteration whose files remain; None for the beginning."""
        return self._files.chosen(self.history, result, self.loop.keep)

    async def iterate(self) -> Iteration:
        """Run one iteration on the files of its parent, and keep those that it made."""
        number = self.scope.number
        await self._files.place(self.scope.continued, number)
        iteration = await super().iterate()
        self.task = None  # a limit of time that a person sets does not cut the capture of files
        if iteration.candidates and (chosen := self._files.current) is not None:
            # A snapshot with the name of the iteration, of the files that the chosen candidate made.
            await self._files.show(chosen)
            await self._files.capture(number)
        return replace(iteration, files=await self._files.close(number))

    async def _called(
        self, ctx: Context, name: str, step: Step, value: Json, token: str = ""
    ) -> Json:
        """Call a stage; the files are captured before they are judged."""
        # Not the shorter path of functions: an evaluator may run commands.
        output = await ctx.call(name, step, value, token)
        scope = ctx.scope
        assert scope is not None
        assert scope.files is not None
        if name == "execute":
            place = f"candidate-{scope.candidate}" if scope.candidate else scope.number
            await scope.files.capture(place)
        elif name == "evaluate":
            tampered = as_evaluation(output).tampered
            if tampered is not None and tampered.files is not None:
                scope.files.replace(tampered.files)
        return output
