// A plan under construction: buffers, signals, lanes, ready handshake, GEMM tiles with split-K.
// Called by the planners beside it.
#include "schedules/builder.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/gemm_tasks.hpp"
#include "core/text.hpp"
#include "schedules/ranges.hpp"
#include "schedules/task_limit.hpp"
#include "tilewire/spi/operator.hpp"

namespace tilewire {
namespace {

thread_local TaskLimit* youngest_limit = nullptr;

}  // namespace

TaskLimit::TaskLimit(int64_t most) : before_(std::exchange(youngest_limit, this)), most_(most) {}
TaskLimit::~TaskLimit() { youngest_limit = before_; }

void TaskLimit::check(const std::string& schedule, int64_t tasks) {
  if (youngest_limit == nullptr || tasks <= youngest_limit->most_) return;
  youngest_limit->met_ = true;
  fail(ErrorKind::unsupported, "schedule {}: a plan of more than {} tasks", schedule, youngest_limit->most_);
}

bool in_arena(const Problem& problem, const std::string& name) {
  return std::ranges::find(problem.arena, name) != problem.arena.end();
}

PlanBuilder::PlanBuilder(const Problem& problem, const Team& team, const Config& config)
    : PlanBuilder(problem, team, config, find_operator(problem.op).buffers(problem, team.num_ranks)) {}

PlanBuilder::PlanBuilder(const Problem& problem, const Team& team, const Config& config, std::vector<Buffer> buffers)
    : problem_(problem), config_(config) {
  plan_.op = problem.op;
  plan_.team = team;
  plan_.team.rank = 0;
  plan_.buffers = std::move(buffers);
  for (Buffer& buffer : plan_.buffers) {
    buffer.in_arena = in_arena(problem, buffer.name);
    buffer.constant = std::ranges::find(problem.constant, buffer.name) != problem.constant.end();
  }
  num_parts_.assign(team.num_ranks, 0);
  for (int rank = 0; !problem.more_n.empty() && rank < team.num_ranks; ++rank)
    columns_.push_back(columns_on(problem, team.num_ranks, rank));
}

int PlanBuilder::buffer(const std::string& name) const {
  const auto found = std::ranges::find(plan_.buffers, name, &Buffer::name);
  ensure(found != plan_.buffers.end(), "plan of {} has no buffer {}", problem_.op, name);
  return static_cast<int>(found - plan_.buffers.begin());
}

int PlanBuilder::add_buffer(const std::string& name, DType dtype, int64_t rows, int64_t cols, Scope scope) {
  const bool symmetric = scope == Scope::symmetric;
  const bool ll = symmetric && config_.transport == Transport::ll;
  plan_.buffers.push_back(
      {.name = name, .dtype = dtype, .rows = rows, .cols = cols, .scope = scope, .ll = ll, .shared = symmetric && !ll});
  return static_cast<int>(plan_.buffers.size()) - 1;
}

void PlanBuilder::make_grouped(int buffer, int extents, int64_t most_rows, std::vector<Shape> shapes) {
  plan_.buffers[buffer].extents = extents;
  plan_.buffers[buffer].most_rows = most_rows;
  set_shapes(buffer, std::move(shapes));
}

int PlanBuilder::add_signals(const std::string& name, int count) {
  const int first = num_signals(plan_);
  plan_.signals.push_back({name, first, count});
  return first;
}

int PlanBuilder::add_lane(int rank, Engine engine, const std::string& name, int workers) {
  plan_.lanes.push_back({.rank = rank, .engine = engine, .name = name, .workers = workers});
  return static_cast<int>(plan_.lanes.size()) - 1;
}

void PlanBuilder::add(int lane, Task task) {
  TaskLimit::check(config_.schedule, ++num_tasks_);
  if (is_product(task) || is_grouped_gemm(task)) task.gemm = gemm_params();
  // Copies have no tile that leaves.
  const Via via = config_.transport == Transport::bulk  ? Via::bulk
                  : config_.transport == Transport::tma ? Via::tma
                                                        : Via::automatic;
  for (Write& write : task.writes) write.via = task.kind == TaskKind::copy ? Via::automatic : via;
  plan_.lanes[lane].tasks.push_back(std::move(task));
}

void PlanBuilder::merge_posts(Task& task) {
  std::vector<Post> merged;
  for (const Post& post : task.posts) {
    const auto same = std::ranges::find(merged, post.signal, &Post::signal);
    same == merged.end() ? merged.push_back(post) : static_cast<void>(same->add += post.add);
  }
  task.posts = std::move(merged);
}

Region PlanBuilder::region(int rank, int buffer, Range rows, Range cols) {
  return {
      .rank = rank, .buffer = buffer, .row = rows.begin, .rows = rows.size(), .col = cols.begin, .cols = cols.size()};
}

Region PlanBuilder::whole(int rank, int buffer) const {
  const Shape shape = shape_on(plan_.buffers[buffer], rank);
  return region(rank, buffer, {0, shape.rows}, {0, shape.cols});
}

PlanBuilder::OfOutput PlanBuilder::of_output(int rank, Range cols) const {
  if (columns_.empty()) return {0, cols};
  const std::vector<Range>& outputs = columns_[rank];
  const auto mine = std::ranges::find_if(outputs, [&](const Range& of) { return within(cols, of); });
  ensure(mine != outputs.end(), "columns {}..{} of rank {} are no output's", cols.begin, cols.end, rank);
  return {static_cast<size_t>(mine - outputs.begin()), {cols.begin - mine->begin, cols.end - mine->begin}};
}

Region PlanBuilder::output(int rank, Range rows, Range cols) {
  if (c_ < 0) c_ = buffer("c");
  const OfOutput of = of_output(rank, cols);
  return region(rank, c_ + static_cast<int>(of.output), rows, of.cols);
}

std::vector<EpilogueStep> PlanBuilder::epilogue(int rank, Range rows, Range cols) const {
  std::vector<EpilogueStep> steps;
  if (problem_.epilogue.empty()) return steps;
  const OfOutput of = of_output(rank, cols);
  const auto operand = [&](const char* name, Range of_rows) {
    return region(rank, buffer(name_of_output(name, of.output)), of_rows, of.cols);
  };
  for (const Epilogue& step : problem_.epilogue) {
    steps.push_back({.kind = step.kind, .value = step.value});
    if (step.kind == EpilogueKind::bias) steps.back().operand = operand("bias", {0, 1});
    if (step.kind == EpilogueKind::residual) steps.back().operand = operand("residual", rows);
  }
  return steps;
}

std::vector<Post> PlanBuilder::ready_posts(int rank, bool also_self) {
  if (ready_ < 0) ready_ = add_signals("ready", num_ranks());
  std::vector<Post> posts;
  for (const int peer : peers_after(num_ranks(), rank)) posts.push_back({{peer, ready_ + rank}});
  if (also_self) posts.push_back({{rank, ready_ + rank}});
  return posts;
}

void PlanBuilder::say_ready(int rank, int lane) {
  if (num_ranks() > 1) add(lane, {.kind = TaskKind::sync, .posts = ready_posts(rank, false)});
}

Wait PlanBuilder::ready(int rank, int peer, Purpose purpose) {
  if (ready_ < 0) ready_ = add_signals("ready", num_ranks());
  return {{rank, ready_ + peer}, 1, purpose};
}

void PlanBuilder::pace(Task& task, int rank, int phase, int first) const {
  if (config_.pacing != Pacing::lockstep) return;
  if (phase > 1) task.waits.push_back({{rank, first + phase - 1}, kAllPosts, Purpose::pace});
  task.posts.push_back({{(rank + num_ranks() - 1) % num_ranks(), first + phase}});
}

Region PlanBuilder::b_region(int rank, Range cols, Range depth) {
  if (b_ < 0) b_ = buffer("b");
  const OfOutput of = of_output(rank, cols);
  const int b = b_ + static_cast<int>(of.output);  // those of the other outputs follow, as c's do
  const Range mine{columns_of_b(problem_, of.cols.begin), columns_of_b(problem_, of.cols.end)};
  return problem_.b_layout == BLayout::nk ? region(rank, b, mine, depth) : region(rank, b, depth, mine);
}

void PlanBuilder::expect_products(int64_t most) {
  const Config& c = config_;
  if (c.split_k == 1 || most == 0) return;
  const Problem& p = problem_;
  part_rows_ = std::min(c.tile_m, p.m);
  parts_ = add_buffer("parts", DType::fp32, most * c.split_k * part_rows_, std::min(c.tile_n, widest_output(p)),
                      Scope::local);
  parts_made_ = add_signals("parts_made", static_cast<int>(most));
}

void PlanBuilder::add_part(int lane, Region a, Range cols, Task task) {
  task.reads = {a, b_region(plan_.lanes[lane].rank, cols, {a.col, a.col + a.cols})};
  add(lane, std::move(task));
}

void PlanBuilder::add_product(int lane, int sum_lane, Region a, Range cols, Task task) {
  const int rank = plan_.lanes[lane].rank;
  const int split = config_.split_k;
  if (split == 1) return add_part(lane, a, cols, std::move(task));
  // Each part waits for the data; their sum waits for the parts and for whatever it overwrites.
  const int index = num_parts_[rank]++;
  const Signal made{rank, parts_made_ + index};
  std::vector<Wait> data_waits;
  std::ranges::copy_if(task.waits, std::back_inserter(data_waits),
                       [](const Wait& w) { return w.purpose == Purpose::data; });
  std::erase_if(task.waits, [](const Wait& w) { return w.purpose == Purpose::data; });
  task.waits.push_back({made, split});
  task.kind = TaskKind::reduce;
  for (int part = 0; part < split; ++part) {
    const Range depth = shard_of(a.cols, split, part);
    const int64_t row = (int64_t{index} * split + part) * part_rows_;
    const Region to = region(rank, parts_, {row, row + a.rows}, {0, cols.size()});
    Region slice = a;
    slice.col += depth.begin;
    slice.cols = depth.size();
    task.reads.push_back(to);
    add_part(lane, slice, cols, {.kind = TaskKind::compute, .writes = {{to}}, .waits = data_waits, .posts = {{made}}});
  }
  add(sum_lane, std::move(task));
}

void PlanBuilder::add_norms(int lane, int output, Range rows, const Wait& summed) {
  if (!problem_.norm) return;
  constexpr int64_t kMostRows = 8;
  constexpr int64_t kTasks = 128;  // about one for each worker of a GPU, if there are as many rows
  const int rank = plan_.lanes[lane].rank;
  const int64_t at_once = std::clamp<int64_t>(problem_.m / kTasks, 1, kMostRows);
  for (int64_t row = rows.begin; row < rows.end; row += at_once) {
    const Range some{row, std::min(row + at_once, rows.end)};
    Task task{.kind = TaskKind::compute, .body = Body::norm, .norm = *problem_.norm};
    task.reads = {region(rank, output, some, {0, problem_.n}), whole(rank, buffer("norm_weight"))};
    if (problem_.norm->kind == NormKind::layer) task.reads.push_back(whole(rank, buffer("norm_bias")));
    task.writes = {{region(rank, buffer("normed"), some, {0, problem_.n})}};
    if (quantises(*problem_.norm))
      task.writes.push_back({.to = region(rank, buffer("norm_scale"), some, {0, 1}), .first_col = problem_.n});
    task.waits = {summed};
    add(lane, std::move(task));
  }
}

GemmParams PlanBuilder::gemm_params() const {
  // NOTE: tiles in step wait for chunks that come at other times on each rank: those that share B drift apart.
  const CacheHint hint = config_.tile_order == TileOrder::in_step ? CacheHint::none : CacheHint::automatic;
  return {.b_layout = problem_.b_layout,
          .allow_tf32 = problem_.allow_tf32,
          .tile_m = config_.tile_m,
          .tile_n = config_.tile_n,
          .cluster_m = config_.cluster_m,
          .cluster_n = config_.cluster_n,
          .cluster_split_k = config_.cluster_split_k,
          .a_hint = hint,
          .b_hint = hint};
}

/// Workers that the config asks for, and with `launches` = 2 a kernel for each lane that sums or takes what lands.
void PlanBuilder::complete_lanes() {
  std::vector<int> kernels(num_ranks(), 0);
  for (Lane& lane : plan_.lanes) {
    const bool multiplies = std::ranges::count(lane.tasks, TaskKind::compute, &Task::kind) > 0;
    if (lane.workers == 0 && !is_serial(lane.engine))
      lane.workers = multiplies ? config_.tile_workers : lane.engine == Engine::reduce ? config_.reduce_workers : 0;
    if (config_.launches > 1 && lane.engine == Engine::reduce) lane.kernel = ++kernels[lane.rank];
  }
}

Plan PlanBuilder::take() {
  const std::vector<int64_t> totals = signal_totals(plan_);
  std::erase_if(plan_.lanes, [](const Lane& lane) { return lane.tasks.empty(); });
  complete_lanes();
  for (Lane& lane : plan_.lanes) {
    for (Task& task : lane.tasks) {
      for (Wait& wait : task.waits) {
        if (wait.at_least == kAllPosts) wait.at_least = totals[signal_id(plan_, wait.signal)];
      }
      std::erase_if(task.waits, [](const Wait& wait) { return wait.at_least == 0; });
    }
  }
  return std::move(plan_);
}

}  // namespace tilewire
