// Enqueues one call of a program: kernels, copies, library calls.
// Called by run, and by bursts.
#include "backends/cuda/kernels/task_span.hpp"
#include "backends/cuda/runtime/program.hpp"

namespace tilewire::cuda {

namespace {

/// Order later work of `stream` after all work that is in `other` now.
void wait_for_end(const Event& event, const Stream& other, cudaStream_t stream) {
  check(cudaEventRecord(event.get(), other.get()), "cudaEventRecord");
  wait_for(stream, event);
}

}  // namespace

void CudaProgram::enqueue_call(const Bound& bound, cudaStream_t stream, uint64_t capture) {
  group_.calls().begin(stream, capture);
  try {
    enqueue_all(bound, stream, capture);
  } catch (const std::exception& error) {
    // A partly captured call is never run.
    if (capture != 0) throw;
    // Enqueued work already waits for work that is missing: break the team so that it ends, and let later calls wait.
    const auto* known = dynamic_cast<const Error*>(&error);
    group_.fail_with(known != nullptr ? *known : Error(ErrorKind::internal, error.what()));
    group_.calls().end(stream, capture);
    throw;
  }
  group_.calls().end(stream, capture);
}

void CudaProgram::enqueue_all(const Bound& bound, cudaStream_t stream, uint64_t capture) {
  const WaitWatch watch = group_.watch_of(bound.owner);
  WorkerLaunch workers{bound.workers, bound.bases, workspace_.counters(), watch,
                       reinterpret_cast<TaskSpan*>(bound.spans.get())};
  if (workspace_.has_copies()) {
    workers.copied = &group_.head(group_.rank())->calls.copied;
    workers.copy_distance = group_.copy_distance();
  }
  if (bound.tables.stream_ordered) return enqueue_stream_ordered(bound, workers, stream);
  const std::vector<StreamUse>& uses = bound.tables.streams;
  const CallStreams sides = group_.side_streams().of_call(capture, uses);
  if (!uses.empty()) check(cudaEventRecord(sides.fork->get(), stream), "cudaEventRecord");
  for (const SideStream* side : sides.all) wait_for(side->stream.get(), *sides.fork);
  // NOTE: streams may share one queue of the device. So kernels come before the work that waits for them, and works are
  // in an order in which each can begin.
  enqueue_kernels(bound, workers, stream);
  for (size_t i = 0; i < bound.tables.works.size(); ++i) {
    enqueue_work(bound, i, workers, *sides.all[bound.tables.works[i].stream], capture != 0);
  }
  for (size_t i = 0; i < uses.size(); ++i) {
    const SideStream& side = *sides.all[i];
    wait_for_end(side.end, side.stream, stream);
    if (uses[i].has_notifier && capture == 0) wait_for_end(side.copied, side.notifier, stream);
  }
}

namespace {

void launch_part(const WorkerLaunch& launch, const PlainOps& plain, const Preamble& preamble, bool ends_call,
                 cudaStream_t stream, bool experts) {
  plain.kind == Plain::no ? launch_workers(launch, preamble, ends_call, stream, experts)
                          : launch_plain_ops(launch, plain, preamble, ends_call, stream);
}

}  // namespace

/// NOTE: with a budget of SMs, early CTAs could take the SMs that are left to kernels of others.
bool CudaProgram::launches_early() const { return group_.calls().by_caller() && group_.has_whole_gpus(); }

/// Grouped GEMMs, one kernel after another. They count no call.
void CudaProgram::enqueue_grouped(const Bound& bound, const WorkerLaunch& workers, cudaStream_t stream) {
  for (size_t i = 0; i < bound.grouped.size(); ++i) {
    GemmLaunch launch{.table = bound.grouped[i].table};
    launch.workers.bases = bound.bases;
    launch.workers.watch = workers.watch;
    launch.workers.spans = workers.spans;
    launch.workers.watch.calls = nullptr;
    launch_groups(bound.tables.grouped[i].kind, launch, stream);
  }
}

/// The kernel before the library call, the call, and the kernel after it, one after another.
void CudaProgram::enqueue_stream_ordered(const Bound& bound, const WorkerLaunch& before, cudaStream_t stream) {
  const Preamble& preamble = bound.tables.preamble;
  const bool opens = preamble.num_posts > 0 || bound.traced;
  const bool rows = bound.tables.rows.has_value();
  // NOTE: grouped GEMMs count no call, so that a kernel behind them ends it.
  const bool more = bound.after.num_lanes > 0 || opens || rows || !bound.grouped.empty();
  const bool has_before = before.table.num_lanes > 0 || bound.tables.first.has_task;
  if (has_before) {
    WorkerLaunch first = before;
    first.begins = true;
    launch_part(first, bound.plain, bound.tables.first, !more, stream, bound.tables.experts);
    // NOTE: in a queue of the device that ranks share, the kernels below would hold up the other ranks' first kernels.
    if (group_.shares_device()) check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  // NOTE: a rank without experts has neither.
  enqueue_grouped(bound, before, stream);
  if (!bound.calls.empty()) bound.calls[0]->enqueue(bound.bases, stream);
  if (!more) return;
  WorkerLaunch after = before;
  after.table = bound.after;
  after.begins = !has_before;
  if (!rows) return launch_part(after, bound.plain_after, preamble, true, stream, bound.tables.experts);
  if (opens) {
    // The kernel of rows has no preamble.
    WorkerLaunch opening = after;
    opening.table = {};
    launch_workers(opening, preamble, false, stream);
    after.begins = false;
  }
  launch_rows(after, *bound.tables.rows, launches_early(), stream);
}

/// The kernel that waits and posts for the whole call.
void CudaProgram::enqueue_kernels(const Bound& bound, const WorkerLaunch& all, cudaStream_t stream) {
  WorkerLaunch workers = all;
  workers.begins = true;
  const bool early = launches_early();
  if (bound.tables.gemv) {
    launch_gemv(workers, *bound.tables.gemv, early, stream);
  } else if (bound.tables.rows) {
    launch_rows(workers, *bound.tables.rows, early, stream);
  } else if (bound.tables.gemm_ctas > 0) {
    GemmLaunch gemm{
        .ctas = bound.tables.gemm_ctas, .cluster = bound.tables.cluster, .workers = workers, .table = bound.gemm.table};
    if (bound.tables.lanes_apart) gemm.workers.table.ctas = 0;
    launch_gemm_tiles(bound.tables.kind, gemm, stream);
  } else if (bound.tables.lanes_apart || workers.table.ctas == 0) {
    launch_sync_lanes(workers, stream);
  } else {
    launch_workers(workers, {}, true, stream, bound.tables.experts);
  }
}

/// NOTE: if copies in a graph have two successors each (the next copy, and a doorbell write in another stream), a copy
/// begins some 20 us late (docs/cuda.md, Graphs). So captures use no notify stream.
void CudaProgram::enqueue_work(const Bound& bound, size_t index, const WorkerLaunch& workers, const SideStream& side,
                               bool captured) {
  const StreamWork& work = bound.tables.works[index];
  cudaStream_t stream = side.stream.get();
  const auto* worker = std::get_if<StreamWorkers>(&work.what);
  const bool ends_workers = std::holds_alternative<StreamWorkersEnd>(work.what);
  if (work.doorbell != nullptr && !ends_workers && !work.follows)
    wait_for_doorbell(group_.driver(), work.doorbell, stream);
  if (const auto* copy = std::get_if<StreamCopy>(&work.what)) {
    enqueue_copy(*copy, bound.bases, stream);
  } else if (worker != nullptr) {
    launch_data_lane(workers, worker->lane, bound.tables.workers.lanes[worker->lane].ctas, stream);
  } else if (!ends_workers) {
    bound.calls[index]->enqueue(bound.bases, stream);
  }
  if (work.doorbell == nullptr || worker != nullptr) return;
  const bool by_notifier = work.notified_aside && !captured;
  cudaStream_t notifier = by_notifier ? side.notifier.get() : stream;
  if (by_notifier) wait_for_end(side.copied, side.stream, notifier);
  ring_done(group_.driver(), work.doorbell, notifier);
}

}  // namespace tilewire::cuda
