// Which lanes the kernels for plain ops can execute, and the ops in these kernels' layout.
// Called by programs when tables are made.
#include "backends/cuda/kernels/plain_ops.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/cuda/tables/lane_tables.hpp"
#include "core/text.hpp"

namespace tilewire::cuda {
namespace {

bool in_vectors(const std::byte* data, int64_t ld, int64_t cols, int64_t rows, DType dtype) {
  constexpr int64_t kVector = 16;
  const int64_t size = bytes_of(dtype);
  return reinterpret_cast<uintptr_t>(data) % kVector == 0 && cols * size % kVector == 0 &&
         (rows <= 1 || ld * size % kVector == 0);
}

Plain plain_kind(const HostWorkerTable& workers, const OpRecord& step) {
  const auto sources = std::span(workers.sources).subspan(step.first_source, step.num_sources);
  const auto targets = std::span(workers.targets).subspan(step.first_target, step.num_targets);
  if ((step.code != OpCode::copy && step.code != OpCode::reduce) || step.polls || step.num_epilogue > 0)
    return Plain::no;
  if (sources.size() > kPlainRecords || targets.size() > kPlainRecords) return Plain::no;
  if (sources.empty() || (step.code == OpCode::copy && sources.size() > 1) || step.cols == 0) return Plain::no;
  const DType dtype = sources[0].dtype;
  const bool even = std::ranges::all_of(sources, [&](const SourceRecord& from) {
    return from.dtype == dtype && in_vectors(from.data, from.ld, step.cols, step.rows, dtype);
  });
  const bool stored = std::ranges::all_of(targets, [&](const TargetRecord& to) {
    return to.dtype == dtype && to.mode == StoreMode::store && to.first_row == 0 && to.rows == step.rows &&
           in_vectors(to.data, to.ld, step.cols, to.rows, dtype);
  });
  if (!even || !stored) return Plain::no;
  if (step.code == OpCode::copy) return Plain::copies;
  return bytes_of(dtype) == 2 ? Plain::sums : Plain::no;
}

template <class Record>
void take(const std::vector<Record>& from, uint32_t& first, uint32_t count, Record* to) {
  std::copy_n(from.begin() + first, count, to);
  first = 0;
}

PlainOp laid_out(const HostWorkerTable& workers, OpRecord step) {
  PlainOp plain;
  take(workers.waits, step.first_wait, step.num_waits, plain.waits);
  take(workers.sources, step.first_source, step.num_sources, plain.sources);
  take(workers.targets, step.first_target, step.num_targets, plain.targets);
  take(workers.posts, step.first_post, step.num_posts, plain.posts);
  plain.step = step;
  return plain;
}

}  // namespace

Plain plain_ops(const HostWorkerTable& workers, bool after) {
  Plain all = Plain::no;
  for (const LaneRecord& lane : workers.lanes) {
    if (lane.after != after || lane.sync_only) continue;
    if (lane.serial || lane.helped) return Plain::no;
    for (const OpRecord& step : std::span(workers.ops).subspan(lane.first_op, lane.num_ops)) {
      if (step.num_waits > kPlainRecords || step.num_posts > kPlainRecords) return Plain::no;
      if (step.code == OpCode::sync) continue;
      const Plain kind = plain_kind(workers, step);
      if (kind == Plain::no) return Plain::no;
      if (all != Plain::sums) all = kind;
    }
  }
  return all;
}

std::vector<PlainOp> lay_out_ops(const HostWorkerTable& workers, bool after) {
  std::vector<PlainOp> first;
  std::vector<PlainOp> others;
  const uint32_t ctas = counts_of(workers, after).ctas;
  for (const LaneRecord& lane : workers.lanes) {
    if (lane.after != after || lane.sync_only) continue;
    ensure(lane.ctas <= lane.num_ops, "{} CTAs for a lane of {} steps", lane.ctas, lane.num_ops);
    for (uint32_t cta = 0; cta < lane.ctas; ++cta) {
      PlainOp* before = &first.emplace_back(laid_out(workers, workers.ops[lane.first_op + cta]));
      for (uint32_t i = cta + lane.ctas; i < lane.num_ops; i += lane.ctas) {
        before->next = ctas + static_cast<uint32_t>(others.size());
        before = &others.emplace_back(laid_out(workers, workers.ops[lane.first_op + i]));
      }
    }
  }
  first.insert(first.end(), others.begin(), others.end());
  return first;
}

}  // namespace tilewire::cuda
