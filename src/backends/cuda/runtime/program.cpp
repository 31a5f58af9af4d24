// Runs a plan on a GPU: binds tensors, launches the kernels of a call, reports a wait that failed.
// Called by users through Program.
#include "backends/cuda/runtime/program.hpp"

#include <algorithm>
#include <utility>

#include "backends/cuda/kernels/route_table.hpp"
#include "backends/cuda/runtime/callers_stream.hpp"
#include "backends/cuda/runtime/trace.hpp"
#include "backends/cuda/runtime/upload.hpp"
#include "backends/cuda/tables/gemv_table.hpp"
#include "backends/cuda/tables/work_order.hpp"
#include "backends/tensors.hpp"
#include "core/implied_order.hpp"
#include "core/ll.hpp"
#include "core/text.hpp"
#include "lower/lane_roles.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire::cuda {
namespace {

/// Most sets of tables for different layouts of callers' tensors, without those that graphs may replay.
constexpr int64_t kMostBound = 64;

/// The lanes of one kernel: those after a stream-ordered GEMM, or the others.
WorkerTable part_of(const HostWorkerTable& host, const WorkerTable& all, bool after) {
  const WorkerTable counts = counts_of(host, after);
  WorkerTable part = all;
  if (after) part.lanes += host.lanes.size() - counts.num_lanes;
  part.num_lanes = counts.num_lanes;
  part.ctas = counts.ctas;
  part.sync_lanes = counts.sync_lanes;
  return part;
}

std::shared_ptr<std::byte> upload(const HostWorkerTable& host, WorkerTable& table, cudaStream_t stream) {
  Upload all;
  all.add(host.lanes, &table.lanes);
  all.add(host.ops, &table.ops);
  all.add(host.sources, &table.sources);
  all.add(host.targets, &table.targets);
  all.add(host.epilogue, &table.epilogue);
  all.add(host.waits, &table.waits);
  all.add(host.posts, &table.posts);
  table.helper_ctas = host.helper_ctas;
  return all.finish(stream);
}

/// The plain ops of a kernel beside a stream-ordered GEMM, if it has plain ops only. `memory` keeps them.
PlainOps plain_ops_of(const HostWorkerTable& host, bool after, std::shared_ptr<std::byte>& memory,
                      cudaStream_t stream) {
  PlainOps plain{plain_ops(host, after)};
  if (plain.kind == Plain::no) return plain;
  const std::vector<PlainOp> steps = lay_out_ops(host, after);
  Upload all;
  all.add(steps, &plain.ops);
  memory = all.finish(stream);
  return plain;
}

/// The plan with the lanes of one rank.
Plan share_of(const Plan& plan, int rank) {
  Plan share{plan.op, {}, plan.target, plan.team, plan.buffers, plan.signals, {}};
  std::ranges::copy_if(plan.lanes, std::back_inserter(share.lanes),
                       [&](const Lane& lane) { return lane.rank == rank; });
  return share;
}

std::vector<int> lanes_of(const Plan& plan, int rank) {
  std::vector<int> lanes;
  for (int lane = 0; lane < std::ssize(plan.lanes); ++lane) {
    if (plan.lanes[lane].rank == rank) lanes.push_back(lane);
  }
  return lanes;
}

/// order_of_tasks for the lanes of one rank.
std::vector<std::vector<int64_t>> places_of(const Plan& plan, int rank) {
  const std::vector<std::vector<int64_t>> all = in_full_order(plan, order_of_tasks);
  std::vector<std::vector<int64_t>> mine;
  for (const int lane : lanes_of(plan, rank)) mine.push_back(all[lane]);
  return mine;
}

template <class Work>
std::vector<Work> of_kind(const std::vector<StreamWork>& works) {
  std::vector<Work> some;
  for (const StreamWork& work : works) {
    if (const auto* found = std::get_if<Work>(&work.what)) some.push_back(*found);
  }
  return some;
}

/// Throw Error(invalid_input) for memory that this rank's GPU cannot address: an access would destroy the context.
/// Memory of the arena needs no check. NOTE: some systems let GPUs address all host memory; unregistered memory is
/// refused on them, too, as the caller has then forgotten a copy.
void require_on_device(const CudaGroup& group, const Buffer& buffer, const std::byte* data) {
  if (data == nullptr || group.reachable().part_of(data, 1)) return;
  cudaPointerAttributes found{};
  check(cudaPointerGetAttributes(&found, data), "cudaPointerGetAttributes");
  require(found.type != cudaMemoryTypeUnregistered,
          "buffer {} lies at {}, memory that CUDA does not know: want GPU {}'s, or pinned or managed memory",
          buffer.name, fmt::ptr(data), group.device());
  require(found.type != cudaMemoryTypeDevice || found.device == group.device(),
          "buffer {} lies at {} on GPU {}, want GPU {}, this rank's", buffer.name, fmt::ptr(data), found.device,
          group.device());
}

/// The experts of a plan's routing.
int64_t num_experts(const Plan& plan) {
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (task.route) return task.route->experts;
    }
  }
  return 0;
}

/// Rows of memory of a plan's groups.
int64_t most_rows(const Plan& plan) {
  int64_t most = 0;
  for (const Buffer& buffer : plan.buffers) most = std::max(most, buffer.most_rows);
  return most;
}

}  // namespace

CudaProgram::CudaProgram(CudaGroup& group, const Plan& plan)
    : group_(group),
      plan_(share_of(plan, group.rank())),
      lanes_(lanes_of(plan, group.rank())),
      totals_(signal_totals(plan)),
      places_(places_of(plan, group.rank())),
      in_place_(in_place_pairs(plan)),
      workspace_(group, plan, plan_) {
  std::vector<StreamWork> works;
  // NOTE: all ranks have carved; so if they share a device, no call of any rank runs now.
  host::agree(group.ranks(), [&] {
    workspace_.fill();
    works = made_up_works();
    if (group.shares_device()) clock_ = match_with_host();
    if (calls_library(plan)) prepare_library(of_kind<LibraryGemm>(works));
    return std::string();
  });
  if (calls_collective(plan)) group.prepare(of_kind<LibraryCollective>(works));
}

CudaProgram::~CudaProgram() {
  const BesideCapture beside;
  static_cast<void>(cudaStreamSynchronize(group_.call_stream()));
  static_cast<void>(group_.calls().wait());
  for (const auto& bound : bound_) group_.failures().remove(bound->owner);
}

std::vector<Base> CudaProgram::bases_of(std::span<const Tensor> inputs, std::span<const Tensor> outputs) const {
  require_tensors(plan_, group_.rank(), inputs, outputs, group_.reachable(), in_place_);
  std::vector<Base> bases(plan_.buffers.size());
  for_each_tensor(plan_, inputs, outputs, [&](int buffer, const Tensor& tensor) {
    const int part = plan_.buffers[buffer].in_arena ? group_.reachable().part_of(tensor.data, 1).value_or(0) : 0;
    bases[buffer] = {static_cast<std::byte*>(tensor.data), tensor.rows <= 1 ? tensor.cols : tensor.row_stride, part};
  });
  return bases;
}

RankTables CudaProgram::tables_for(const std::vector<Base>& callers, bool traced) const {
  const int cluster = slow_tiles(plan_) ? 1 : ctas_of(cluster_of_tiles(plan_, group_.rank()));
  const Room room{sms_for_clusters(group_.target(), cluster), !group_.shares_device(), traced};
  RankTables tables = make_tables(plan_, group_.rank(), workspace_.addresses(callers), totals_, room);
  put_in_order(tables.works, places_);
  return tables;
}

/// The work of streams before tensors are bound; callers' tensors are assumed dense and aligned. Throws for a plan that
/// does not fit the GPU.
std::vector<StreamWork> CudaProgram::made_up_works() const {
  std::vector<Base> callers(plan_.buffers.size());
  for (size_t i = 0; i < callers.size(); ++i) callers[i].ld = shape_on(plan_.buffers[i], group_.rank()).cols;
  return tables_for(layout_of(callers), false).works;
}

/// Callers' tensors at relative addresses, as the tables have them: each with a base of its own.
std::vector<Base> CudaProgram::layout_of(const std::vector<Base>& callers) const {
  std::vector<Base> layout(callers.size());
  uint32_t number = 0;
  for (size_t i = 0; i < callers.size(); ++i) {
    if (!is_callers(plan_.buffers[i])) continue;
    const uint64_t address = relative_address(++number, reinterpret_cast<uint64_t>(callers[i].data));
    layout[i] = {reinterpret_cast<std::byte*>(address), callers[i].ld, callers[i].part};
  }
  ensure(number < kCopyBase, "{} tensors of callers, at most {}", number, kCopyBase - 1);
  return layout;
}

Bases CudaProgram::bases_at(const std::vector<Base>& callers) const {
  Bases bases;
  uint32_t number = 0;
  for (size_t i = 0; i < callers.size(); ++i) {
    if (!is_callers(plan_.buffers[i])) continue;
    ++number;
    bases.of[number] = base_of(number, reinterpret_cast<uint64_t>(callers[i].data));
  }
  bases.of[kCopyBase] = base_of_copies();
  return bases;
}

/// Let the library choose its kernels before the first call.
void CudaProgram::prepare_library(const std::vector<LibraryGemm>& gemms) {
  for (const LibraryGemm& gemm : gemms) group_.library().prepare(gemm);
  static_cast<void>(group_.library_workspace());
}

CudaProgram::Bound& CudaProgram::bind(const std::vector<Base>& callers, bool traced, bool keep) {
  const std::vector<Base> layout = layout_of(callers);
  const auto found = std::ranges::find_if(bound_, [&](const auto& bound) {
    return bound->traced == traced && bound->layout == layout && (!bound->absolute || bound->current == callers);
  });
  if (found == bound_.end() || (*found)->current != callers) require_tensors_here(callers);
  if (found != bound_.end()) {
    std::rotate(bound_.begin(), found, found + 1);
    move_to(*bound_.front(), callers);
  } else {
    if (!keep) make_room();
    bound_.insert(bound_.begin(), new_bound(callers, traced));
  }
  bound_.front()->captured = bound_.front()->captured || keep;
  return *bound_.front();
}

void CudaProgram::require_tensors_here(const std::vector<Base>& callers) const {
  for (size_t i = 0; i < callers.size(); ++i) {
    const Shape shape = shape_on(plan_.buffers[i], group_.rank());
    if (is_callers(plan_.buffers[i]) && shape.rows > 0 && shape.cols > 0)
      require_on_device(group_, plan_.buffers[i], callers[i].data);
  }
}

/// Use the tables for tensors at these addresses in the next call. Touches neither device memory nor streams.
void CudaProgram::move_to(Bound& bound, const std::vector<Base>& callers) {
  if (bound.current == callers) return;
  bound.current.clear();  // if make_moving throws, the maps are of no call
  bound.bases = bases_at(callers);
  make_moving(bound.tables.gemm, bound.bases, bound.gemm.table);
  for (size_t i = 0; i < bound.grouped.size(); ++i)
    make_moving(bound.tables.grouped[i].table, bound.bases, bound.grouped[i].table);
  bound.current = callers;
}

std::unique_ptr<LibraryCall> CudaProgram::bind_call(const StreamWork& work) {
  if (const auto* gemm = std::get_if<LibraryGemm>(&work.what)) {
    return group_.library().bind(*gemm, group_.library_workspace());
  }
  const auto* collective = std::get_if<LibraryCollective>(&work.what);
  return collective == nullptr ? nullptr : group_.bind(*collective);
}

/// NOTE: works in the group's stream, which no capture includes.
std::unique_ptr<CudaProgram::Bound> CudaProgram::new_bound(const std::vector<Base>& callers, bool traced) {
  auto bound = std::make_unique<Bound>();
  bound->layout = layout_of(callers);
  bound->traced = traced;
  bound->tables = tables_for(bound->layout, traced);
  bound->absolute = !serves_any_address(bound->tables);
  if (bound->absolute) bound->tables = tables_for(callers, traced);
  bound->gemm = upload(bound->tables.gemm, group_.stream());
  for (const GroupedKernel& kernel : bound->tables.grouped)
    bound->grouped.push_back(upload(kernel.table, group_.stream()));
  move_to(*bound, callers);
  WorkerTable all;
  bound->memory = upload(bound->tables.workers, all, group_.stream());
  bound->workers = part_of(bound->tables.workers, all, false);
  bound->after = part_of(bound->tables.workers, all, true);
  if (bound->tables.stream_ordered) {
    bound->plain = plain_ops_of(bound->tables.workers, false, bound->plain_memory, group_.stream());
    bound->plain_after = plain_ops_of(bound->tables.workers, true, bound->plain_after_memory, group_.stream());
  }
  if (traced) bound->spans = new_spans(bound->tables.names.size(), group_.stream());
  for (const StreamWork& work : bound->tables.works) bound->calls.push_back(bind_call(work));
  bound->owner = group_.failures().add(
      [this, which = bound.get()](const WaitFailure& failure) { return describe(*which, failure); });
  return bound;
}

/// If kMostBound sets of tables exist, remove the least recently used one, after all calls have ended.
void CudaProgram::make_room() {
  const auto may_go = [](const auto& bound) { return !bound->captured; };
  if (std::ranges::count_if(bound_, may_go) < kMostBound) return;
  static_cast<void>(group_.calls().wait());
  const auto oldest = std::ranges::find_if(bound_.rbegin(), bound_.rend(), may_go);
  group_.failures().remove((*oldest)->owner);
  if (traced_ == oldest->get()) traced_ = nullptr;
  bound_.erase(std::next(oldest).base());
}

void CudaProgram::run(std::span<const Tensor> inputs, std::span<const Tensor> outputs, const RunOptions& options) {
  const CurrentDevice device(group_.driver(), group_.device());
  const BesideCapture beside;
  throw_if_failed();
  const cudaStream_t stream =
      options.stream ? callers_stream(*options.stream, group_.shares_device()) : group_.call_stream();
  const uint64_t capture = capture_of(stream);
  if (options.stream && capture == 0) require_device(stream, group_.device());
  if (options.max_delay_us > 0) {
    fail(ErrorKind::unsupported, "max_delay_us = {}: tasks of GPUs are not delayed; delay the streams instead",
         options.max_delay_us);
  }
  const Bound& bound = bind(bases_of(inputs, outputs), options.trace, capture != 0);
  traced_ = options.trace ? &bound : nullptr;
  if (!options.stream) {
    group_.calls().follow_default(stream);
    group_.calls().follow_calls(stream);
  }
  enqueue_call(bound, stream, capture);
  if (capture != 0 || (options.stream && !group_.shares_device())) return;
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  throw_if_failed();
}

void CudaProgram::wait() {
  const CurrentDevice device(group_.driver(), group_.device());
  const BesideCapture beside;
  check(group_.calls().wait(), "cudaEventSynchronize");
  throw_if_failed();
}

std::optional<Error> CudaProgram::failure() {
  try {
    throw_if_failed();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

void CudaProgram::throw_if_failed() {
  if (const auto failure = group_.find_failure()) throw Error(*failure);
  group_.ranks().check_whole([&] { return fmt::format("{}: rank {} is stopped", plan_.op, group_.rank()); });
}

Error CudaProgram::describe(const Bound& bound, const WaitFailure& failure) const {
  if (failure.wait == kOverlap || failure.overlaps != 0) {
    return {ErrorKind::invalid_input,
            fmt::format("{} on rank {}: two calls overlapped: with order = stream the caller must run a team's calls "
                        "and graph replays one after another",
                        plan_.op, group_.rank())};
  }
  if (failure.wait == kNoExpert || failure.wait == kTwiceAnExpert) {
    const auto expert = static_cast<int64_t>(failure.seen);
    return {ErrorKind::invalid_input,
            failure.wait == kTwiceAnExpert
                ? fmt::format("{} on rank {}: topk_ids of token {}: expert {} twice", plan_.op, group_.rank(),
                              failure.wanted, expert)
                : fmt::format("{} on rank {}: topk_ids of token {}: expert {}, want 0 to {}", plan_.op, group_.rank(),
                              failure.wanted, expert, num_experts(plan_) - 1)};
  }
  if (failure.wait == kTooManyRows) {
    return {ErrorKind::invalid_input, fmt::format("{}: tokens give rank {} {} rows, max_rows = {}", plan_.op,
                                                  group_.rank(), failure.seen, failure.wanted)};
  }
  if ((failure.wait == kRowBeyond || failure.wait == kGroupBeyond) && failure.task < bound.tables.names.size()) {
    const TaskName& name = bound.tables.names[failure.task];
    const std::vector<Region>& reads = plan_.lanes[name.lane].tasks[name.task].reads;
    const int64_t number = static_cast<int64_t>(failure.wanted) + reads[failure.wait == kRowBeyond ? 1 : 0].row;
    return {ErrorKind::invalid_input,
            failure.wait == kRowBeyond
                ? fmt::format("{} on rank {}: places of token {}: row {}, want -1 to {}", plan_.op, group_.rank(),
                              number, static_cast<int64_t>(failure.seen), most_rows(plan_) - 1)
                : fmt::format("{} on rank {}: extents: group {} begins at row {} or ends beyond 0..{}", plan_.op,
                              group_.rank(), number, static_cast<int64_t>(failure.seen), most_rows(plan_))};
  }
  WaitReport report{.op = plan_.op, .rank = group_.rank(), .wanted = failure.wanted, .seen = failure.seen};
  if (failure.task < bound.tables.names.size()) {
    const TaskName& name = bound.tables.names[failure.task];
    const Lane& lane = plan_.lanes[name.lane];
    report.lane = lane.name;
    report.task = name.task;
    const auto& waits = lane.tasks[name.task].waits;
    report.signal = failure.wait < waits.size() ? signal_name(plan_, waits[failure.wait].signal) : "its turn";
    const std::vector<Region>& reads = lane.tasks[name.task].reads;
    if (failure.wait == kDataOfPeers && failure.seen < reads.size()) {
      const Region& part = reads[failure.seen];
      report.signal = fmt::format("the data of {} on rank {} from row {}, column {} on,",
                                  plan_.buffers[part.buffer].name, part.rank, part.row, part.col);
      report.wanted = 1;
      report.seen = 0;
    }
    if (failure.wait == kCopyEnd) {
      const Task& task = lane.tasks[name.task];
      report.signal = fmt::format("the end of the {} on rank {}{}", to_string(task.kind), lane.rank,
                                  calls_collective(task) ? ", which takes all ranks" : "");
      report.wanted = 1;
    }
  }
  if (failure.told != 0) return group_.ranks().stopped(report);
  return {ErrorKind::timeout, fmt::format("timeout after {} s: {}", group_.ranks().timeout_s(), host::in_words(report)),
          report};
}

Target CudaGroup::target() const {
  const auto least = std::ranges::min_element(team_.devices, {}, &Device::sms);
  Target target = gpu_target(kind_, team_.num_ranks, least->sms);
  target.cluster_sms = cluster_sms_;
  target.streams = !shares_device_;
  target.whole_gpu = whole_gpus_;
  if (shares_device_) target.name += "_shared";
  if (!whole_gpus_) target.name += fmt::format("_{}_sms", target.sms);
  return target;
}

std::unique_ptr<Program> CudaGroup::load(const Plan& plan) {
  validate(plan);
  const CurrentDevice device(driver_, device_);
  if (const auto missing = unsupported(plan); !missing.empty()) {
    fail(ErrorKind::unsupported, "the cuda backend cannot do {}", fmt::join(missing, ", "));
  }
  if (plan.target.empty()) return load(lower(plan, target()).plan);
  require_target(plan, target());
  return std::make_unique<CudaProgram>(*this, plan);
}

}  // namespace tilewire::cuda
