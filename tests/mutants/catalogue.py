"""Planted bugs: small, deliberate defects that the suite must catch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """``before`` occurs once in the source of ``module``; with ``after`` in its place the code is wrong."""

    name: str
    module: str
    before: str
    after: str


MUTANTS = (
    Mutant(
        "as_of comparison inverted",
        "reconcile.compatibility",
        "installed_sinces[id] > since",
        "installed_sinces[id] < since",
    ),
    Mutant(
        "kept although the since is past as_of by one",
        "reconcile.compatibility",
        "if id in installed_sinces and installed_sinces[id] > since:",
        "if False:",
    ),
    Mutant(
        "dependency closure forgotten",
        "reconcile.plan",
        "reasons += _dependency_reasons(match, wanted, kept_ages)",
        "pass",
    ),
    Mutant(
        "a dependency rendered after its reader counts as kept",
        "reconcile.plan",
        "kept_ages.get(id, match.age) >= match.age",
        "id not in kept_ages",
    ),
    Mutant(
        "dropped oldest first",
        "reconcile.plan",
        "installed.newest_first() if",
        "installed if",
    ),
    Mutant(
        "what is not requested runs on",
        "reconcile.plan",
        "if dataflow.age not in kept),",
        "if dataflow.age not in kept and any(dataflow in _matches(installed, w) for w in requested)),",
    ),
    Mutant(
        "a kept export's since does not move",
        "reconcile.plan",
        "compactions=tuple(_compactions(kept.values())),",
        "compactions=(),",
    ),
    Mutant(
        "a tail is kept",
        "reconcile.compatibility",
        "    if requested.is_tail:\n",
        "    if False:\n",
    ),
    Mutant(
        "imports compared in order",
        "reconcile.compatibility",
        "if set(installed.imports) != set(requested.imports):",
        "if installed.imports != requested.imports:",
    ),
    Mutant(
        "transient ids compared as they are",
        "reconcile.dataflow",
        "if built.id.is_transient and built.id not in exported and built.id not in names:",
        "if False:",
    ),
    Mutant(
        "only the first reason is told",
        "reconcile.plan",
        "return tuple(reasons)\n",
        "return tuple(reasons[:1])\n",
    ),
    Mutant(
        "correction sent below as_of",
        "reconcile.uppers",
        "if progress.upper < progress.as_of or not progress.upper > progress.told:",
        "if not progress.upper > progress.told:",
    ),
    Mutant(
        "corrections forgotten",
        "reconcile.installed",
        "        yield from self._corrections(requested)\n",
        "",
    ),
    Mutant(
        "told uppers survive the term",
        "reconcile.uppers",
        "            progress.told = MINIMUM\n",
        "",
    ),
    Mutant(
        "an upper goes back",
        "reconcile.uppers",
        "if progress is None or not upper > progress.upper:",
        "if progress is None:",
    ),
    Mutant(
        "a drop is not acknowledged",
        "reconcile.installed",
        "        change = self._uppers.close(id)\n",
        "        self._uppers.close(id)\n        change = None\n",
    ),
    Mutant(
        "a drop inside a window is acknowledged",
        "reconcile.installed",
        "            if since == CLOSED:\n                self._uppers.remove(id)\n",
        "            if since == CLOSED and (change := self._uppers.close(id)):\n"
        "                yield FrontierUppers(changes=(change,))\n",
    ),
    Mutant(
        "dropped export resurrected",
        "reconcile.history",
        "                if since > as_of:\n",
        "                if since > as_of and not since.is_closed:\n",
    ),
    Mutant(
        "reduced as_of is the greatest since",
        "reconcile.live",
        "return meet(self.sinces.values())",
        "return max(self.sinces.values())",
    ),
    Mutant(
        "a dataflow goes with its first dropped export",
        "reconcile.live",
        "            if not dataflow.exports_live:\n",
        "            if True:\n",
    ),
    Mutant(
        "a since goes back",
        "reconcile.live",
        "if dataflow is None or not since > dataflow.sinces[id]:",
        "if dataflow is None:",
    ),
    Mutant(
        "compactions replayed before peeks",
        "reconcile.history",
        "        yield from self.peeks\n        for dataflow in self.dataflows:\n            as_of = dataflow.as_of\n"
        "            for id, since in dataflow.sinces.items():\n                if since > as_of:\n"
        "                    yield AllowCompaction(id=id, since=since)\n",
        "        for dataflow in self.dataflows:\n            as_of = dataflow.as_of\n"
        "            for id, since in dataflow.sinces.items():\n                if since > as_of:\n"
        "                    yield AllowCompaction(id=id, since=since)\n        yield from self.peeks\n",
    ),
    Mutant(
        "peeks on a dropped collection stay in the history",
        "reconcile.history",
        "                    self.peeks.pop_on(id)\n",
        "                    pass\n",
    ),
    Mutant(
        "stale session's peek answered",
        "reconcile.installed",
        "        yield from self._verdicts(steps)\n        yield from self.stop_peeks()\n",
        "        yield from self._verdicts(steps)\n",
    ),
    Mutant(
        "answers go to whoever is connected",
        "reconcile.reconciler",
        "listener = self.sessions.live if self.sessions.stage is Stage.RUNNING else None",
        "listener = self.sessions.live",
    ),
    Mutant(
        "a peek below since is started",
        "reconcile.installed",
        "        if not since.is_open_at(peek.at):\n",
        "        if False:\n",
    ),
    Mutant(
        "a stale epoch is accepted",
        "reconcile.sessions",
        "if hello.epoch < self._epoch:",
        "if False:",
    ),
    Mutant(
        "the epoch is told before it is durable",
        "reconcile.actions",
        "return (*persist, Accept(session=hello.session, epoch=hello.epoch))",
        "return (Accept(session=hello.session, epoch=hello.epoch), *persist)",
    ),
    Mutant(
        "a superseded session still commands",
        "reconcile.sessions",
        "        if session == self.live:\n            return None\n",
        "        if session in self._accepted:\n            return None\n",
    ),
    Mutant(
        "commands are allowed before create-instance",
        "reconcile.sessions",
        "    (Stage.INITIALIZING, Verb.COMMAND): Stage.INITIALIZING,\n",
        "    (Stage.INITIALIZING, Verb.COMMAND): Stage.INITIALIZING,\n"
        "    (Stage.GREETED, Verb.COMMAND): Stage.GREETED,\n",
    ),
    Mutant(
        "a window outlives its session",
        "reconcile.reconciler",
        "        self.sessions.move(Verb.END)\n        self._window = None\n",
        "        self.sessions.move(Verb.END)\n",
    ),
    Mutant(
        "a refused command is half applied",
        "reconcile.reconciler",
        "                require_creatable(dataflows, installed.dataflows)\n"
        "                require_readable(dataflows, installed.dataflows)\n"
        "                for description in dataflows:\n                    yield from installed.render(description)\n",
        "                for description in dataflows:\n"
        "                    require_creatable((description,), installed.dataflows)\n"
        "                    require_readable((description,), installed.dataflows)\n"
        "                    yield from installed.render(description)\n",
    ),
    Mutant(
        "join replaced by meet",
        "reconcile.merge",
        "upper > collection.told and upper >= collection.as_of:",
        "upper < collection.told and upper >= collection.as_of:",
    ),
    Mutant(
        "frontier told below as_of",
        "reconcile.merge",
        "upper > collection.told and upper >= collection.as_of:",
        "upper > collection.told:",
    ),
    Mutant(
        "meet replaced by join",
        "reconcile.frontiers",
        "old, new = self._frontier, Antichain(min(counts, default=None))",
        "old, new = self._frontier, Antichain(max(counts, default=None))",
    ),
    Mutant(
        "an error beats the rows to come",
        "reconcile.merge",
        "if self._live and not self._working(peek) and peek.last_failure is not None:",
        "if self._live and peek.last_failure is not None:",
    ),
    Mutant(
        "an earlier incarnation is heard",
        "reconcile.merge",
        "if self._live.get(replica) == incarnation:",
        "if replica in self._live:",
    ),
    Mutant(
        "a tail repeats what was told",
        "reconcile.tail_stitching",
        "updates=batch.updates.not_before(lower)",
        "updates=batch.updates",
    ),
    Mutant(
        "a tail leaps over a gap",
        "reconcile.tail_stitching",
        "        if batch.lower > self.told:\n            self._hold(batch)\n            return\n",
        "",
    ),
    Mutant(
        "a moved source keeps its writer epoch",
        "reconcile.scheduling",
        "WriterEpoch(self._writer_epochs.get(source.id, 0) + 1)",
        "WriterEpoch(self._writer_epochs.get(source.id, 1))",
    ),
    Mutant(
        "a recovered replica is not told to stop",
        "reconcile.scheduling",
        "            if source not in runs_here:\n",
        "            if False:\n",
    ),
    Mutant(
        "a singleton follows the smallest replica",
        "reconcile.scheduling",
        "            elif source.host is None:\n",
        "            else:\n",
    ),
    Mutant(
        "late updates are written",
        "reconcile.ingesting",
        "accepted = updates.not_before(source.accepted)",
        "accepted = updates",
    ),
    Mutant(
        "a refused source is stopped",
        "reconcile.ingesting",
        "if id not in requested]:",
        "if id not in requested or id in self._refused]:",
    ),
    Mutant(
        "a source that differs is altered",
        "reconcile.ingesting",
        "elif all(name in wanted.alterable for name in fields):",
        "elif any(name in wanted.alterable for name in fields) or True:",
    ),
    Mutant(
        "a source altered within a term keeps its old definition",
        "reconcile.ingesting",
        "source.description = wanted\n            yield SourceStatus(",
        "yield SourceStatus(",
    ),
    Mutant(
        "an alteration is not in the reduced log",
        "reconcile.storage_history",
        "self._sources[source.id] = source",
        "pass",
    ),
    Mutant(
        "a repeated report of records adds",
        "reconcile.steps",
        "        self._reports[id] = report\n",
        "        earlier = known.received if known else 0\n"
        "        self._reports[id] = _Report(step=report.step, received=report.received + earlier)\n",
    ),
    Mutant(
        "a step is asked for again while the request is under way",
        "reconcile.steps",
        "        if self._asked > self._opened:\n            return\n",
        "        if False:\n            return\n",
    ),
    Mutant(
        "records of a lost writer open a step",
        "reconcile.steps",
        "                self._reports.pop(id, None)\n",
        "",
    ),
    Mutant(
        "a source that is ahead is not caught up with",
        "reconcile.steps",
        "self._asked = max(Step(self._opened + 1), ahead)",
        "self._asked = Step(self._opened + 1)",
    ),
    Mutant(
        "records linger from the step before",
        "reconcile.steps",
        "self._waiting_since = self._now if self._reports else None",
        "self._waiting_since = self._waiting_since if self._reports else None",
    ),
    Mutant(
        "the clock opens no step while records wait",
        "reconcile.steps",
        "        if self._rules.tick_ms:\n",
        "        if self._rules.tick_ms and not due:\n",
    ),
    Mutant(
        "a table is sealed beyond a write under way",
        "reconcile.table_writes",
        "return Antichain(first) if first is not None else Antichain.at(opened + 1)",
        "return Antichain.at(opened + 1)",
    ),
    Mutant(
        "a table is sealed before its writer has answered in this reign",
        "reconcile.table_writes",
        "        if self.in_doubt:\n            return self.told\n",
        "",
    ),
    Mutant(
        "a write that came too late is acknowledged",
        "reconcile.table_writes",
        "        if result.left_out:\n            write.step = None\n",
        "        if False:\n            write.step = None\n",
    ),
    Mutant(
        "writes under way are forgotten with their writer",
        "reconcile.table_writes",
        "        table.waiting[:0] = again\n",
        "",
    ),
    Mutant(
        "two writes to one table share a step",
        "reconcile.table_writes",
        "write.step = Step(first + place)",
        "write.step = Step(first + 1)",
    ),
)
