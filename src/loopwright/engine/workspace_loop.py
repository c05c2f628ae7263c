"""The run of a loop whose steps edit the files of a workspace."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from ..errors import Suspended
from ..records import Iteration, Result, Stop
from ..records.codec import Json
from .context import Context
from .loop_declaration import LoopDeclaration
from .loop_run import LoopRun
from .snapshots import Snapshots
from .state import StateSource
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
        self._files = self.snapshots = self.scope.files = files
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
        stop = await super().baseline()
        replay = self.run_state.replay
        began = replay is not None and replay.began(f"{self.path}/1") is not None
        # Later, a difference is an edit of a person, which the loop adopts.
        if self.loop.baseline and not began and not len(self.history):
            await self._files.put_back()
        return stop

    async def iterate(self) -> Iteration:
        """Run one iteration on the files of its parent, and keep those that it made."""
        number = self.scope.number
        stall = self.loop.on_stall
        best = stall is not None and stall.then == "best" and stall.restarts_now(self.history)
        await self._files.place(self.history, number, best=best)
        iteration = await super().iterate()
        return replace(iteration, files=await self._files.close(number))

    async def _called(
        self, ctx: Context, name: str, step: Step, value: Json, token: str = ""
    ) -> Json:
        """Call a stage; the files are captured before they are judged."""
        if name == "adapt":
            value = self._files.parent
        # Not the shorter path of functions: an evaluator may run commands.
        output = await ctx.call(name, step, value, token)
        if name == "execute":
            await self._files.capture(self.scope.number)
        return output
