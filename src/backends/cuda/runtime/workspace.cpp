// The memory of a program: signals, doorbells, workspace, counters, and the groups of routing; the kernels are loaded
// with it. Called by programs.
#include "backends/cuda/runtime/workspace.hpp"

#include <algorithm>

#include "backends/cuda/kernels/plain_ops.hpp"
#include "backends/cuda/kernels/route_table.hpp"
#include "backends/cuda/kernels/workers.hpp"
#include "backends/cuda/runtime/device_clock.hpp"
#include "backends/cuda/runtime/upload.hpp"
#include "backends/cuda/tables/gemv_table.hpp"
#include "core/gemm_tasks.hpp"
#include "core/grouped_tasks.hpp"
#include "core/text.hpp"
#include "lower/kernel_limits.hpp"
#include "lower/lane_roles.hpp"
#include "lower/tensor_cores.hpp"
#include "tilewire/print.hpp"

namespace tilewire::cuda {
namespace {

/// Each signal has a memory sector of its own, as ranks poll and post signals.
constexpr int64_t kSignalBytes = 32;

bool is_copied(const Buffer& buffer) { return buffer.copies > 1; }

bool is_shared(const Buffer& buffer) { return buffer.scope == Scope::symmetric && buffer.shared; }

bool is_own(const Buffer& buffer) { return buffer.scope == Scope::symmetric && !buffer.shared && !is_copied(buffer); }

/// Bytes of one copy of each of these buffers.
int64_t bytes_of_all(const Plan& plan, bool (*which)(const Buffer&)) {
  int64_t bytes = 0;
  for (const Buffer& buffer : plan.buffers) bytes += which(buffer) ? copy_bytes(buffer) : 0;
  return bytes;
}

/// Load the kernels of a plan's grouped GEMMs.
void load_groups(const Plan& plan) {
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (!is_grouped_gemm(task)) continue;
      const DType dtype = plan.buffers[task.reads[0].buffer].dtype;
      const bool gated = is_gated(task.activation);
      for (const TileShape& shape : {kWideGroups, kNarrowGroups}) {
        if (gated && shape == kNarrowGroups) continue;
        load_gemm_tiles({.dtype = dtype,
                         .b_is_kn = task.gemm.b_layout == BLayout::kn,
                         .shape = shape,
                         .groups = gated ? Groups::gated : Groups::plain});
      }
    }
  }
}

/// Fill memory in the thread's default stream.
void set_bytes(std::byte* memory, int64_t bytes, int value) {
  if (bytes == 0) return;
  check(cudaMemsetAsync(memory, value, static_cast<size_t>(bytes), cudaStreamPerThread), "cudaMemsetAsync");
}

}  // namespace

Workspace::Workspace(CudaGroup& group, const Plan& whole, const Plan& plan) : group_(group), plan_(plan) {
  doorbells_ = aligned_bytes(num_signals(plan) * kSignalBytes);
  // NOTE: streams can wait on memory of the arena, but not on memory of cudaMallocAsync.
  own_ = doorbells_ + aligned_bytes(most_stream_work(whole) * static_cast<int64_t>(sizeof(Doorbell)));
  group.reserve_workspace(bytes_of_all(plan, is_shared) + local_bytes(plan));
  has_copies_ = std::ranges::any_of(plan.buffers, is_copied);
  group.reserve_copies(bytes_of_all(plan, is_copied));
  extent_ =
      group.carve(fmt::format("a plan of {} (hash {:x})", plan.op, hash_of(whole)), own_ + bytes_of_all(plan, is_own));
}

int64_t Workspace::moments_at() const {
  const auto counters = static_cast<int64_t>(sizeof(CallCounters) + 2 * 16 * plan_.lanes.size());
  return (counters + alignof(Moments) - 1) / alignof(Moments) * alignof(Moments);
}

void Workspace::fill() {
  const auto has = [&](bool (*is)(const Task&)) {
    return std::ranges::any_of(plan_.lanes, [&](const Lane& lane) { return std::ranges::any_of(lane.tasks, is); });
  };
  const bool norms = has(is_norm) && has(is_gemm_tile) && std::ranges::any_of(plan_.lanes, &Lane::joined);
  const int64_t counters = moments_at() + (norms ? kMostMoments * static_cast<int64_t>(sizeof(Moments)) : 0);
  counters_ = new_device_memory(counters);
  load_worker_kernel();
  if (calls_library(plan_)) load_plain_ops_kernels();
  if (has_few_rows(plan_, group_.rank())) {
    load_gemv_kernels();
    load_row_kernels();
  }
  load_clock_kernel();
  if (!slow_tiles(plan_)) load_gemm_tiles(kind_of(plan_));
  load_groups(plan_);
  fill_route();
  set_bytes(counters_.get(), counters, 0);
  std::byte* mine = group_.at(group_.rank(), extent_.offset);
  set_bytes(mine, own_, 0);
  if (std::ranges::any_of(plan_.buffers, [](const Buffer& each) { return each.ll && is_own(each); }))
    set_bytes(mine + own_, bytes_of_all(plan_, is_own), 0xFF);
  check(cudaStreamSynchronize(cudaStreamPerThread), "cudaStreamSynchronize");
}

/// Upload the groups that the rank routes to.
void Workspace::fill_route() {
  const Task* task = nullptr;
  for (const Lane& lane : plan_.lanes) {
    for (const Task& each : lane.tasks) task = computes_with(each, Body::route) ? &each : task;
  }
  if (task == nullptr) return;
  const RouteParams& route = *task->route;
  std::vector<RouteGroup> groups;
  std::vector<int32_t> first;
  const auto add = [&](int64_t index) {
    const ExpertGroup& group = route.groups[index];
    groups.push_back(
        {static_cast<int32_t>(index), static_cast<int32_t>(group.replica), static_cast<int32_t>(group.replicas)});
  };
  for (int64_t expert = 0; expert < route.experts; ++expert) {
    first.push_back(static_cast<int32_t>(groups.size()));
    for (int64_t i = 0; i < std::ssize(route.groups); ++i) {
      if (route.groups[i].expert == expert) add(i);
    }
  }
  for (int64_t i = 0; i < std::ssize(route.groups); ++i) {
    if (!is_shared(route, route.groups[i])) continue;
    first.push_back(static_cast<int32_t>(groups.size()));
    add(i);
  }
  first.push_back(static_cast<int32_t>(groups.size()));
  std::vector<RouteTable> table(1);
  table[0].experts = static_cast<int32_t>(route.experts);
  table[0].num_groups = static_cast<int32_t>(route.groups.size());
  table[0].align = static_cast<int32_t>(route.align);
  table[0].shards = static_cast<int32_t>(route.shards);
  table[0].shared = static_cast<int32_t>(num_shared(route));
  table[0].max_rows = static_cast<int32_t>(route.max_rows);
  table[0].drops = route.drops;
  Upload parts;
  parts.add(groups, &table[0].groups);
  parts.add(first, &table[0].first);
  route_.push_back(parts.finish(cudaStreamPerThread));
  const int64_t counts = kMostRouteCtas * num_groups(route) * static_cast<int64_t>(sizeof(int32_t));
  const auto meeting = static_cast<int64_t>(sizeof(RouteMeeting));
  route_.push_back(new_device_memory(meeting + counts));
  set_bytes(route_.back().get(), meeting + counts, 0);
  table[0].meeting = reinterpret_cast<RouteMeeting*>(route_.back().get());
  table[0].counts = reinterpret_cast<int32_t*>(route_.back().get() + meeting);
  const RouteTable* at = nullptr;
  Upload whole;
  whole.add(table, &at);
  route_.push_back(whole.finish(cudaStreamPerThread));
}

Workspace::~Workspace() { group_.give_back(extent_); }

Addresses Workspace::addresses(const std::vector<Base>& callers) const {
  Addresses all;
  for (int rank = 0; rank < plan_.team.num_ranks; ++rank) {
    int64_t in_own = extent_.offset + own_;
    int64_t in_shared = 0;
    int64_t in_copy = 0;
    int64_t in_local = bytes_of_all(plan_, is_shared);
    for (size_t index = 0; index < plan_.buffers.size(); ++index) {
      const Buffer& buffer = plan_.buffers[index];
      Base base{nullptr, shape_on(buffer, rank).cols};
      if (is_own(buffer)) base.data = group_.at(rank, in_own);
      if (is_shared(buffer)) base.data = group_.workspace_at(rank, in_shared);
      if (is_copied(buffer)) {
        const auto first = reinterpret_cast<uint64_t>(group_.copied_at(rank, in_copy));
        base.data = reinterpret_cast<std::byte*>(copied_address(first));
        in_copy += copy_bytes(buffer);
      }
      const bool reuses = buffer.reuses >= 0;
      if (buffer.scope == Scope::local && rank == group_.rank()) {
        base.data =
            reuses ? all.bases[rank * plan_.buffers.size() + buffer.reuses].data : group_.workspace_at(rank, in_local);
      }
      if (is_callers(buffer) && rank == group_.rank()) base = callers[index];
      // NOTE: a tensor in the arena has the same offset on every rank (Group::allocate).
      if (is_callers(buffer) && rank != group_.rank() && buffer.in_arena) {
        base.data = callers[index].data + group_.reachable().distance(callers[index].part, rank);
      }
      if (is_own(buffer)) in_own += workspace_bytes(buffer);
      if (is_shared(buffer)) in_shared += workspace_bytes(buffer);
      if (buffer.scope == Scope::local && !reuses) in_local += workspace_bytes(buffer);
      all.bases.push_back(base);
    }
  }
  all.signal = [this](const Signal& signal) {
    return reinterpret_cast<uint64_t*>(group_.at(signal.rank, extent_.offset + signal.index * kSignalBytes));
  };
  all.progress = reinterpret_cast<uint64_t*>(counters() + 1);
  all.moments = reinterpret_cast<Moments*>(counters_.get() + moments_at());
  if (!route_.empty()) all.route = route_.back().get();
  all.doorbells = reinterpret_cast<Doorbell*>(group_.at(group_.rank(), extent_.offset + doorbells_));
  return all;
}

}  // namespace tilewire::cuda
