"""Every decision of a pool and of a worker, without input or output.

The floors, from the top; each imports from those below it only:

- `batch`, `environments`, `membership`, `triggers`, `properties`: what operators define
- `pool`: the state machine that shells and simulated worlds drive, and the questions they may ask
- `recovery`, `invariants`, `census`: a state from the store, what must hold, everything counted
- `handlers`: what each event does
- `attempts`: the only writer of what workers hold, run and have free; what becomes of tasks
- `state`: all that a pool knows
- `scheduling`: demand, supply, match, plan, and why not; it changes nothing
- `effects`, `events`: what a pool wants done, and what happens to it
- `members`, `jobs`: workers; jobs, their tasks and attempts
- `agent`: what a worker does with what it is sent
- `counting`, `pacing`, `model`: counters, intervals, values
"""
