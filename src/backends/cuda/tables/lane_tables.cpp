// From a lowered plan to the records of one rank's kernels: tiles for tensor cores, ops for everything else.
// Called by cuda programs.
#include "backends/cuda/tables/lane_tables.hpp"

#include <algorithm>
#include <span>

#include "backends/cuda/tables/gemv_table.hpp"
#include "backends/cuda/tables/row_table.hpp"
#include "backends/cuda/tables/stream_lanes.hpp"
#include "backends/cuda/tables/tile_records.hpp"
#include "core/gemm_tasks.hpp"
#include "core/grouped_tasks.hpp"
#include "core/text.hpp"
#include "lower/lane_roles.hpp"
#include "tilewire/print.hpp"

namespace tilewire::cuda {
namespace {

static_assert(kHandshakesOfCta == kOpThreads / 32);
static_assert(kWarpgroupsOfCta == kMostWarpgroups && kMostWarpgroups == kThreads / kWarpgroupThreads);

class TableMaker {
 public:
  TableMaker(const Plan& plan, int rank, const Addresses& addresses, const std::vector<int64_t>& totals,
             const Room& room)
      : plan_(plan), view_{plan, rank, addresses, totals, out_}, room_(room), tiles_(view_) {}

  RankTables make() {
    const bool fast =
        !has_stages(plan_, view_.rank) && !slow_tiles(plan_) && loads_by_tensor_map(view_) && !has_norms_in_call();
    out_.stream_ordered = has_stages(plan_, view_.rank);
    // NOTE: if tensors do not suit tensor copies, the tiles are ops of the call's one kernel.
    out_.lanes_apart = !out_.stream_ordered && has_several_kernels(plan_, view_.rank) &&
                       (has_library_lane(plan_, view_.rank) || (room_.streams && fast));
    out_.kind = kind_of(plan_);
    out_.gemv = gemv_table(view_);
    out_.rows = row_table(view_);
    if (fast) start_tiles();
    for (int lane = 0; lane < std::ssize(plan_.lanes); ++lane) {
      if (plan_.lanes[lane].rank != view_.rank || plan_.lanes[lane].tasks.empty()) continue;
      if ((out_.gemv || out_.rows) && moves_data(plan_.lanes[lane]) && !calls_in_stage(lane)) continue;
      if (fast && by_tensor_cores(plan_.lanes[lane])) {
        add_tile_lane(lane);
      } else if (out_.stream_ordered) {
        add_staged_lane(lane);
      } else if (by_stream(plan_.lanes[lane])) {
        add_stream_lane(lane);
      } else {
        add_worker_lane(lane);
      }
    }
    tiles_.finish();
    if (out_.lanes_apart) start_workers_late(out_, view_.addresses.doorbells);
    std::ranges::stable_sort(out_.workers.lanes, {},
                             [](const LaneRecord& lane) { return std::pair(lane.after, lane.sync_only); });
    set_ctas();
    spread_sums(out_);
    drop_repeated_waits(out_);
    return std::move(out_);
  }

 private:
  /// Whether norms are in the call's first kernel: only worker CTAs without tensor cores have code for them. (Ranks
  /// that share a GPU have one kernel.)
  [[nodiscard]] bool has_norms_in_call() const {
    return std::ranges::any_of(plan_.lanes, [&](const Lane& lane) {
      return lane.rank == view_.rank && lane.kernel == 0 && !lane.joined && std::ranges::any_of(lane.tasks, is_norm);
    });
  }

  /// Set what the rank's GEMM kernel needs before its first tile: the cluster, sums, rows of A in two places.
  void start_tiles() {
    const TileCluster cluster = cluster_of_tiles(plan_, view_.rank);
    out_.cluster = {.m = static_cast<uint32_t>(cluster.m),
                    .n = static_cast<uint32_t>(cluster.n),
                    .k = static_cast<uint32_t>(cluster.split_k)};
    for (const Lane& lane : plan_.lanes) {
      if (lane.rank != view_.rank || !by_tensor_cores(lane)) continue;
      for (const Task& task : lane.tasks) {
        if (!is_gemm_tile(task)) continue;
        out_.kind.sums = out_.kind.sums || !task.addends.empty();
        tiles_.add_split(task);
      }
    }
  }

  /// Set the CTAs as in the plan. All but the helper CTAs must be resident at once.
  void set_ctas() {
    const auto tiles = static_cast<uint32_t>(out_.gemm.tiles.size());
    const uint32_t cluster = cluster_ctas(out_.cluster);
    const uint32_t wanted = static_cast<uint32_t>(tile_workers_) * out_.cluster.k;
    out_.gemm_ctas = std::min(std::max(cluster, wanted / cluster * cluster), tiles);
    const bool may_help = tiles > 0 && room_.streams && !out_.lanes_apart;
    HostWorkerTable& workers = out_.workers;
    for (LaneRecord& lane : workers.lanes) {
      lane.helped = lane.helped && may_help && lane.num_ops > lane.ctas;
      if (lane.helped)
        workers.helper_ctas = std::max(workers.helper_ctas, std::min(out_.gemm_ctas, lane.num_ops - lane.ctas));
    }
    // NOTE: library calls need SMs while CTAs wait for them.
    const bool beside = !out_.stream_ordered && has_library_lane(plan_, view_.rank);
    const bool waits = beside && counts_of(workers, false).ctas + out_.gemm_ctas > 0;
    const int sms = std::max(1, room_.sms - (waits ? kLeastForLibrary : 0));
    for (const bool after : {false, true}) {
      const uint32_t all =
          worker_ctas(counts_of(workers, after), kOpThreads) + (after ? 0 : out_.gemm_ctas + normalising_ctas());
      require(all <= static_cast<uint32_t>(sms), "{}: rank {} has {} SMs for {} CTAs that wait for each other",
              plan_.op, view_.rank, sms, all);
    }
  }

  /// CTAs of the GEMV kernel that wait for each other's moments. (Those of the kernel of rows are clusters.)
  [[nodiscard]] uint32_t normalising_ctas() const {
    return out_.gemv && out_.gemv->sum.norm.there ? out_.gemv->ctas : 0;
  }

  /// Handshakes before and after the tiles of a lane form a sync-only lane, as they move no data.
  void add_tile_lane(int index) {
    const Lane& lane = plan_.lanes[index];
    std::vector<Place> others;
    for (const Place& at : all_of(index)) {
      is_gemm_tile(task_at(at)) ? tiles_.add(at.lane, at.task) : others.push_back(at);
    }
    if (!others.empty()) add_ops(others, 1, true);
    require_workers(lane);
    tile_workers_ = lane.workers;
  }

  [[nodiscard]] static bool is_work(const Task& task) {
    return task.kind != TaskKind::sync && task.reads[0].rows > 0 && task.reads[0].cols > 0;
  }

  [[nodiscard]] decltype(StreamWork::what) what_of(const Lane& lane, const Task& task) const {
    if (calls_collective(task)) return library_collective(view_, task);
    if (calls_library(task)) return library_gemm(view_, lane, task);
    return stream_copy(view_, task);
  }

  /// Whether the lane is a stream-ordered GEMM, between two kernels.
  [[nodiscard]] bool calls_in_stage(int index) const {
    return index < std::ssize(plan_.lanes) && plan_.lanes[index].rank == view_.rank &&
           plan_.lanes[index].stage == kCallStage;
  }

  /// Add a lane of stage 0 to the kernel before the GEMM, or of stage 2 to the kernel after it.
  void add_staged_lane(int index) {
    if (calls_in_stage(index))
      return has_groups(plan_.lanes[index]) ? add_grouped_gemms(index) : add_stream_ordered_call(index);
    if (goes_with_call(plan_, index)) return;
    const size_t first = out_.workers.lanes.size();
    add_worker_lane(index);
    if (out_.workers.lanes.size() > first)
      out_.workers.lanes.back().after = plan_.lanes[index].stage == kStageAfterCall;
  }

  /// Add the kernels of a lane of grouped GEMMs. They neither wait nor post (refuses_stages).
  void add_grouped_gemms(int index) {
    for (const Task& task : plan_.lanes[index].tasks) {
      const Region& a = task.reads[0];
      const Region& b = task.reads[1];
      const Region& c = task.writes[0].to;
      const auto view = [&](const Region& region) {
        const Buffer& buffer = plan_.buffers[region.buffer];
        const int64_t rows = is_grouped(buffer) ? buffer.most_rows : shape_on(buffer, region.rank).rows;
        const Base& at = view_.base(region);
        return MatrixView{at.data, buffer.dtype, rows, shape_on(buffer, region.rank).cols, at.ld};
      };
      const Region extents = extents_read(plan_, task)[0];
      GroupedProduct product{.a = view(a), .b = view(b), .c = view(c)};
      product.b_is_kn = task.gemm.b_layout == BLayout::kn;
      const int64_t rows_of_b = b.rows / a.rows;
      product.groups = rows_of_b > 0 ? product.b.rows / rows_of_b : 0;
      product.extents_ld = view_.base(extents).ld;
      product.extents = reinterpret_cast<const int32_t*>(view_.data_of(extents));
      product.activation = task.activation;
      if (!is_gated(task.activation)) product.shape = shape_of_groups(plan_.buffers[a.buffer].most_rows, extents.cols);
      GroupedKernel& kernel = out_.grouped.emplace_back(GroupedKernel{grouped_table(product), kind_of(product)});
      FamilyRecord& family = kernel.table.families[0];
      family.extents += a.row;
      family.groups = static_cast<int32_t>(a.rows);
      family.first_group = static_cast<int32_t>(b.row / rows_of_b);
      family.first_col = static_cast<int32_t>(task.writes[0].first_col);
      family.cols = static_cast<int32_t>(c.cols);
      family.task = view_.name_task(index, &task - plan_.lanes[index].tasks.data());
    }
  }

  /// Add a stream-ordered GEMM. The kernel before it executes the handshakes of its lane and its waits, the kernel
  /// after it posts.
  void add_stream_ordered_call(int index) {
    const Lane& lane = plan_.lanes[index];
    const Task& task = lane.tasks[0];
    std::vector<Place> before;
    if (index > 0 && goes_with_call(plan_, index - 1)) before = all_of(index - 1);
    out_.works.push_back({.lane = index, .task = 0, .what = library_gemm(view_, lane, task)});
    const bool waits = !task.waits.empty() || room_.traced;
    const Task* first = before.empty() ? nullptr : &task_at(before[0]);
    const bool greets = first != nullptr && first->waits.empty() && std::ssize(first->posts) <= kMostPreamblePosts;
    if (greets) {
      post_in_preamble(out_.first, *first, view_.name_task(before[0].lane, before[0].task));
      before.erase(before.begin());
    }
    out_.first.notes_begin = true;
    if (waits) before.push_back({index, 0});
    if (!before.empty()) add_ops(before, 1, true);
    if (waits) {
      out_.workers.ops.back().code = OpCode::sync;
      out_.workers.ops.back().num_posts = 0;
    }
    post_in_preamble(out_.preamble, task, waits ? out_.workers.ops.back().task : 0);
  }

  /// Let a kernel post for the task, number `name`, in its preamble.
  void post_in_preamble(Preamble& preamble, const Task& task, uint32_t name) const {
    std::vector<PostRecord> posts;
    view_.add_posts(task, posts);
    std::ranges::copy(posts, preamble.posts);
    preamble.num_posts = static_cast<uint32_t>(posts.size());
    preamble.task = name;
    preamble.has_task = true;
    preamble.waited = !task.waits.empty();
  }

  /// Which tasks of a stream's lane have a doorbell, by which the sync-only lane starts them and waits for them: all,
  /// if one of them waits or posts, or the call is traced. Beside a collective, whose end needs a deadline, a task that
  /// follows other work and neither waits nor posts needs none.
  [[nodiscard]] std::vector<bool> doorbells_of(const Lane& lane) const {
    if (room_.traced) return std::vector<bool>(lane.tasks.size(), true);
    const auto meets = [](const Task& task) { return !task.waits.empty() || !task.posts.empty(); };
    const bool collective = std::ranges::any_of(lane.tasks, [](const Task& task) { return calls_collective(task); });
    if (!collective) return std::vector<bool>(lane.tasks.size(), std::ranges::any_of(lane.tasks, meets));
    std::vector<bool> doorbells;
    for (size_t i = 0; i < lane.tasks.size(); ++i) {
      const bool follows = i == 0 || is_work(lane.tasks[i - 1]);
      doorbells.push_back(calls_collective(lane.tasks[i]) || meets(lane.tasks[i]) || !follows);
    }
    return doorbells;
  }

  /// Whether earlier tasks of the lane have waited for everything that this task waits for.
  [[nodiscard]] static bool waits_are_over(const Lane& lane, size_t index) {
    return std::ranges::all_of(lane.tasks[index].waits, [&](const Wait& wait) {
      return std::any_of(lane.tasks.begin(), lane.tasks.begin() + static_cast<ptrdiff_t>(index), [&](const Task& task) {
        return std::ranges::any_of(task.waits, [&](const Wait& earlier) {
          return earlier.signal == wait.signal && earlier.at_least >= wait.at_least;
        });
      });
    });
  }

  /// Let a stream execute the lane's work, and a sync-only lane wait and post for it. Without waits and posts, the work
  /// begins with the call.
  void add_stream_lane(int index) {
    const Lane& lane = plan_.lanes[index];
    const std::vector<bool> doorbells = doorbells_of(lane);
    const bool gated = std::ranges::count(doorbells, true) > 0;
    const size_t first_op = out_.workers.ops.size();
    if (gated) add_ops(all_of(index), 1, true);
    for (size_t i = 0; i < lane.tasks.size(); ++i) {
      const Task& task = lane.tasks[i];
      const bool works = is_work(task);
      if (gated) out_.workers.ops[first_op + i].code = works && doorbells[i] ? OpCode::doorbell : OpCode::sync;
      if (!works) continue;
      StreamWork& work = out_.works.emplace_back();
      work.stream = static_cast<int>(out_.streams.size());
      work.lane = index;
      work.task = static_cast<int64_t>(i);
      work.what = what_of(lane, task);
      if (!doorbells[i]) continue;
      work.follows = i > 0 && is_work(lane.tasks[i - 1]) && waits_are_over(lane, i);
      work.doorbell = view_.addresses.doorbells + out_.works.size() - 1;
      out_.workers.ops[first_op + i].doorbell = work.doorbell;
    }
    const auto first = out_.works.end() - std::ranges::count_if(lane.tasks, is_work);
    const bool copies = lane.engine == Engine::copy;
    out_.streams.push_back({.urgent = copies, .has_notifier = copies && add_notifier({first, out_.works.end()})});
  }

  void require_workers(const Lane& lane) const {
    require(lane.workers > 0, "{}: lane {} on rank {} has no workers (share_sms)", plan_.op, lane.name, view_.rank);
  }

  void add_worker_lane(int index) {
    const Lane& lane = plan_.lanes[index];
    for (const Task& task : lane.tasks)
      require(!calls_collective(task), "{}: a worker CTA cannot make a collective call", plan_.op);
    if (!moves_data(lane)) return add_ops(all_of(index), 1, true);
    require_workers(lane);
    const bool serial = is_serial(lane.engine);
    // NOTE: in a serial lane one CTA makes each product whole.
    const bool one = serial && std::ranges::any_of(lane.tasks, is_product);
    // Tiles whose tensors do not suit tensor cores: each CTA of a cluster for split-K takes a tile of its own.
    const int ctas = lane.workers * (by_tensor_cores(lane) ? cluster_of_tiles(plan_, view_.rank).split_k : 1);
    const int64_t room = lane.joined ? room_.sms - lane.workers - 1 : ctas;  // tensors are not aligned
    const int64_t most = serial ? ctas : std::min({int64_t{ctas}, room, std::ssize(lane.tasks)});
    add_ops(all_of(index), one ? 1 : static_cast<int>(most), false, serial);
    // NOTE: products take all threads of a CTA.
    out_.workers.lanes.back().warpgroups = lane.warpgroups && !serial && std::ranges::none_of(lane.tasks, is_product) &&
                                           std::ranges::none_of(plan_.buffers, is_grouped);
    out_.workers.lanes.back().helped = lane.helped && !serial;
  }

  /// A task of the plan.
  struct Place {
    int lane = 0;
    int64_t task = 0;
  };

  [[nodiscard]] const Task& task_at(const Place& at) const { return plan_.lanes[at.lane].tasks[at.task]; }

  /// All tasks of a lane.
  [[nodiscard]] std::vector<Place> all_of(int lane) const {
    std::vector<Place> tasks;
    for (int64_t task = 0; task < std::ssize(plan_.lanes[lane].tasks); ++task) tasks.push_back({lane, task});
    return tasks;
  }

  void add_ops(const std::vector<Place>& tasks, int ctas, bool sync_only, bool serial = false) {
    LaneRecord record{.first_op = static_cast<uint32_t>(out_.workers.ops.size()),
                      .num_ops = static_cast<uint32_t>(tasks.size()),
                      .ctas = static_cast<uint32_t>(ctas),
                      .serial = serial,
                      .sync_only = sync_only};
    record.progress = view_.addresses.progress + 2 * out_.workers.lanes.size();
    out_.workers.lanes.push_back(record);
    for (const Place& at : tasks) add_op(at);
  }

  [[nodiscard]] static OpCode act_of(const Task& task) {
    switch (task.kind) {
      case TaskKind::compute:
      case TaskKind::gemm_call:
        if (task.body == Body::route) return OpCode::route;
        if (task.body == Body::select) return OpCode::select;
        if (task.body == Body::pool) return task.reads.size() == 3 ? OpCode::sum_experts : OpCode::group_rows;
        return is_product(task) ? OpCode::multiply : OpCode::norm;
      case TaskKind::copy:
        return OpCode::copy;
      case TaskKind::reduce:
        return OpCode::reduce;
      case TaskKind::fill:
        return OpCode::fill;
      default:
        return OpCode::sync;
    }
  }

  void add_op(const Place& at) {
    const Task& task = task_at(at);
    HostWorkerTable& workers = out_.workers;
    const Shape shape = result_shape(task);
    OpRecord step{
        .code = act_of(task), .rows = static_cast<int32_t>(shape.rows), .cols = static_cast<int32_t>(shape.cols)};
    step.task = view_.name_task(at.lane, at.task);
    step.polls = view_.polls_data(task);
    step.value = static_cast<float>(act_of(task) == OpCode::norm ? task.norm.eps : task.value);
    step.first_source = static_cast<uint32_t>(workers.sources.size());
    step.first_target = static_cast<uint32_t>(workers.targets.size());
    step.first_epilogue = static_cast<uint32_t>(workers.epilogue.size());
    step.first_wait = static_cast<uint32_t>(workers.waits.size());
    step.first_post = static_cast<uint32_t>(workers.posts.size());
    if (step.code == OpCode::norm) {
      step.depth = static_cast<int32_t>(task.reads[0].cols);
      step.cols = static_cast<int32_t>(task.writes[0].to.cols);
      step.first_col = static_cast<int32_t>(task.writes[0].first_col);
    }
    if (step.code == OpCode::multiply) {
      step.b_is_kn = task.gemm.b_layout == BLayout::kn;
      step.depth = static_cast<int32_t>(depth_of(task));
      step.product_place = static_cast<uint8_t>(task.product_place);
      step.rows_below = static_cast<int32_t>(task.reads.size() > 2 ? task.reads[2].rows : 0);
    }
    if (step.code == OpCode::sum_experts) {
      step.depth = static_cast<int32_t>(task.reads[1].cols);
      step.rows_below = static_cast<int32_t>(plan_.buffers[task.reads[0].buffer].most_rows);
    }
    for (const auto* regions : {&task.reads, &task.addends}) {
      for (const Region& read : *regions) {
        const bool below = regions == &task.reads && is_product(task) && &read - task.reads.data() > 1;
        if (below && read.rows == 0) continue;  // OpRecord::rows_below = 0: no such source
        workers.sources.push_back({view_.data_of(read), view_.base(read).ld, view_.dtype_in_op(task, read)});
      }
    }
    out_.experts = out_.experts || step.code == OpCode::route || step.code == OpCode::group_rows ||
                   step.code == OpCode::select || step.code == OpCode::sum_experts;
    if (step.code == OpCode::route) workers.sources.push_back({.data = view_.addresses.route});
    if (step.code == OpCode::group_rows) {
      Region extents = extents_read(plan_, task)[0];
      extents.col += task.reads[1].row;
      workers.sources.push_back({view_.data_of(extents), view_.base(extents).ld, DType::int32});
    }
    for (const Write& write : task.writes) {
      workers.targets.push_back({view_.data_of(write.to), view_.base(write.to).ld,
                                 static_cast<int32_t>(write.first_row), static_cast<int32_t>(write.to.rows),
                                 view_.dtype_in_op(task, write.to), view_.mode_of(write)});
    }
    view_.add_epilogue(task, workers.epilogue);
    view_.add_waits(task, RankView::Waits::all, workers.waits);
    view_.add_posts(task, workers.posts);
    step.num_sources = small_count("sources", workers.sources.size() - step.first_source);
    step.num_targets = small_count("destinations", workers.targets.size() - step.first_target);
    step.num_epilogue = small_count("steps of an epilogue", task.epilogue.size());
    step.num_waits = count_in_record(workers.waits.size() - step.first_wait);
    step.num_posts = count_in_record(workers.posts.size() - step.first_post);
    workers.ops.push_back(step);
  }

  const Plan& plan_;
  RankTables out_;
  RankView view_;
  Room room_;
  int tile_workers_ = 0;
  TileRecords tiles_;
};

}  // namespace

WorkerTable counts_of(const HostWorkerTable& workers, bool after) {
  WorkerTable counts;
  for (const LaneRecord& lane : workers.lanes) {
    if (lane.after != after) continue;
    ++counts.num_lanes;
    (lane.sync_only ? counts.sync_lanes : counts.ctas) += lane.ctas;
  }
  return counts;
}

bool serves_any_address(const RankTables& tables) {
  const auto fits = [&](const OpRecord& op) {
    const auto sources = std::span(tables.workers.sources).subspan(op.first_source, op.num_sources);
    const auto targets = std::span(tables.workers.targets).subspan(op.first_target, op.num_targets);
    const auto moves = [](const auto& record) { return is_relative(reinterpret_cast<uint64_t>(record.data)); };
    return (sources.size() <= kRecordsAtHand || std::ranges::none_of(sources, moves)) &&
           (targets.size() <= kRecordsAtHand || std::ranges::none_of(targets, moves));
  };
  return tables.gemm.moving.size() <= kMapsAtHand && std::ranges::all_of(tables.workers.ops, fits);
}

RankTables make_tables(const Plan& plan, int rank, const Addresses& addresses, const std::vector<int64_t>& totals,
                       const Room& room) {
  return TableMaker(plan, rank, addresses, totals, room).make();
}

}  // namespace tilewire::cuda
