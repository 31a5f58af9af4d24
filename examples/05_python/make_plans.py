"""Plans without any GPU: lowered for four H200, proven, simulated, damaged and refused."""

import json

import tilewire

SIZES = {"m": 8192, "n": 8192, "k": 8192, "ranks": 4}

for schedule in ("sequential", "fused"):
    plan = tilewire.plan("gemm_reduce_scatter", **SIZES, config=schedule, machine="h200x4")
    done = tilewire.simulate(plan, "h200x4")
    print(f"{schedule}: {plan.num_tasks} tasks, {done.total_ns / 1000:.0f} us on the machine h200x4")

plan = tilewire.plan("gemm_reduce_scatter", **SIZES, target="h200x4")
lowered = tilewire.lower(plan, "h200x4")
for name, text in lowered.notes:
    print(f"  {name}: {text}")
proof = tilewire.check(lowered.plan)
print(f"proven: {proof.ok}, {proof.total_bytes} bytes over links, {proof.least_bytes} at least")

# Without its waits a task may read data that no task has written yet.
damaged = json.loads(plan.to_json())
for task in damaged["lanes"][-1]["tasks"]:
    task.pop("waits", None)
refused = tilewire.check(tilewire.Plan.from_json(json.dumps(damaged)))
print(f"damaged: {refused.violations[0][1]}")
