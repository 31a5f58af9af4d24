// The records of the streams' work for a plan's lanes.
// Called by lane_tables.cpp.
#include "backends/cuda/tables/stream_lanes.hpp"

#include <algorithm>

#include "core/text.hpp"

namespace tilewire::cuda {
namespace {

/// A lane of copies gets a notify stream only above these limits: the number of copies that follow the copy before
/// them, and their average size. A doorbell write stops the copies of its stream for 2.6 us. A notify stream writes it
/// about 12 us later, which pays off only for many long copies. Tiles need the first of short copies soon, and all
/// short copies are complete long before they are needed (docs/decisions.md).
constexpr ptrdiff_t kMostToldInPlace = 4;
constexpr int64_t kLeastNotified = 2 << 20;  // bytes, on average

/// Bytes from each destination to the next one. Throws Error(unsupported) unless they are all equal and positive.
int64_t step_between(const RankView& view, const std::vector<Write>& writes) {
  int64_t step = 0;
  for (size_t i = 1; i < writes.size(); ++i) {
    const int64_t here = view.data_of(writes[i].to) - view.data_of(writes[i - 1].to);
    if (here <= 0 || (i > 1 && here != step)) {
      fail(ErrorKind::unsupported, "compute = library: destination {} is {} bytes behind the one before it, want {}", i,
           here, i > 1 ? fmt::format("{} as before", step) : "more than 0");
    }
    step = here;
  }
  return step;
}

}  // namespace

StreamCopy stream_copy(const RankView& view, const Task& task) {
  const Region& from = task.reads[0];
  const Region& to = task.writes[0].to;
  const int64_t size = bytes_of(view.dtype_of(from));
  return {.to = view.data_of(to),
          .from = view.data_of(from),
          .to_pitch = static_cast<size_t>(view.base(to).ld * size),
          .from_pitch = static_cast<size_t>(view.base(from).ld * size),
          .width = static_cast<size_t>(from.cols * size),
          .rows = static_cast<size_t>(from.rows)};
}

LibraryGemm library_gemm(const RankView& view, const Lane& lane, const Task& task) {
  const Region& a = task.reads[0];
  const Region& b = task.reads[1];
  const Region& to = task.writes[0].to;
  const Shape shape = result_shape(task);
  LibraryGemm gemm{.m = shape.rows, .n = to.cols, .parts = static_cast<int>(task.writes.size())};
  gemm.sms = lane.workers;
  gemm.a = view.data_of(a);
  gemm.b = view.data_of(b);
  gemm.c = view.data_of(to);
  gemm.b_is_kn = task.gemm.b_layout == BLayout::kn;
  gemm.k = a.cols;
  gemm.lda = view.base(a).ld;
  gemm.ldb = view.base(b).ld;
  gemm.ldc = view.base(to).ld;
  gemm.next_part = step_between(view, task.writes);
  gemm.dtype = view.dtype_of(a);
  gemm.tf32 = task.gemm.allow_tf32 && gemm.dtype == DType::fp32;
  gemm.out_dtype = view.dtype_of(to);
  for (const EpilogueStep& step : task.epilogue) {
    gemm.relu = gemm.relu || step.kind == EpilogueKind::relu;
    if (step.kind != EpilogueKind::bias) continue;
    gemm.bias = view.data_of(*step.operand);
    gemm.bias_dtype = view.dtype_of(*step.operand);
  }
  return gemm;
}

LibraryCollective library_collective(const RankView& view, const Task& task) {
  const Region& from = task.reads[0];
  const Region& to = task.writes[0].to;
  for (const Region& region : {from, to}) {
    if (region.rows <= 1 || view.base(region).ld == region.cols) continue;
    fail(ErrorKind::unsupported, "collective = library: rows of {} begin {} elements apart, want {}",
         view.plan.buffers[region.buffer].name, view.base(region).ld, region.cols);
  }
  return {.kind = task.collective,
          .from = view.data_of(from),
          .to = view.data_of(to),
          .from_elements = from.rows * from.cols,
          .to_elements = to.rows * to.cols,
          .dtype = view.dtype_of(from)};
}

bool add_notifier(std::span<StreamWork> copies) {
  if (std::ranges::count(copies, true, &StreamWork::follows) <= kMostToldInPlace) return false;
  int64_t bytes = 0;
  for (const StreamWork& work : copies) {
    const auto* copy = std::get_if<StreamCopy>(&work.what);
    bytes += copy == nullptr ? 0 : static_cast<int64_t>(copy->width * copy->rows);
  }
  if (bytes < kLeastNotified * std::ssize(copies)) return false;
  for (size_t i = 1; i < copies.size(); ++i) copies[i - 1].notified_aside = copies[i].follows;
  return true;
}

void start_workers_late(RankTables& tables, Doorbell* doorbells) {
  const std::vector<LaneRecord> lanes = tables.workers.lanes;
  uint32_t data = 0;
  for (const LaneRecord& lane : lanes) {
    if (lane.sync_only) continue;
    OpRecord guard = tables.workers.ops[lane.first_op];
    const TaskName first = tables.names[guard.task];
    const TaskName last = tables.names[tables.workers.ops[lane.first_op + lane.num_ops - 1].task];
    const auto stream = static_cast<int>(tables.streams.size());
    // NOTE: a lane without waits has a doorbell, too: the sync-only kernel, which ends the call, must not end before
    // it.
    guard.code = OpCode::doorbell;
    guard.doorbell = doorbells + tables.works.size();
    guard.num_posts = 0;
    guard.task = static_cast<uint32_t>(tables.names.size());
    tables.names.push_back({first.lane, first.task, true});
    tables.works.push_back({stream, first.lane, first.task, guard.doorbell, StreamWorkers{data++}});
    tables.works.push_back({stream, last.lane, last.task, guard.doorbell, StreamWorkersEnd{}});
    tables.streams.push_back({.urgent = true});
    tables.workers.lanes.push_back(
        {.first_op = static_cast<uint32_t>(tables.workers.ops.size()), .num_ops = 1, .sync_only = true});
    tables.workers.ops.push_back(guard);
  }
}

}  // namespace tilewire::cuda
