// Plans of single collectives: who sends how much to whom, and after what. They are about traffic alone, so all
// messages of a rank come from one buffer and go to one buffer, whose contents mean nothing. Called by `tilewire sim`,
// studies/ and tests.
#include <algorithm>
#include <bit>
#include <functional>

#include "backends/sim/network.hpp"
#include "core/text.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/print.hpp"
#include "tilewire/sim/sim.hpp"

namespace tilewire {
namespace {

constexpr int64_t kElementBytes = 2;
constexpr int64_t kMostTasks = int64_t{1} << 21;  // a GiB and a half
using Ranks = std::vector<int>;

class Traffic {
 public:
  Traffic(Collective collective, const Machine& machine, int64_t elements) : after_(num_devices(machine)) {
    set_note(plan_, {{.op = to_string(collective), .n = elements}, {.schedule = "collective"}});
    plan_.team = {.num_ranks = num_devices(machine)};
    sums_.assign(after_.size(), -1);
    num_signals_.resize(after_.size());
  }

  /// Along which dimension messages go from now on. NOTE: each has lanes of its own, all of which are free when it
  /// begins: those that were longer busy would send later, and so in another order.
  void set_dimension(size_t dimension) {
    lanes_.resize(std::max(lanes_.size(), dimension + 1), std::vector<std::vector<int>>(after_.size()));
    dimension_ = dimension;
  }

  /// A message, and what its receiver must wait for. A rank's lanes send side by side, each one thing at a time.
  void send(int from, int to, int64_t elements, int lane, const std::vector<Wait>& after, std::vector<Wait>& arrived) {
    most_ = std::max(most_, elements);
    Task task{.kind = TaskKind::copy, .waits = after};
    task.reads = {{.rank = from, .buffer = 0, .rows = 1, .cols = elements}};
    task.writes = {{.to = {.rank = to, .buffer = 1, .rows = 1, .cols = elements}}};
    add(lane_of(from, lane), std::move(task), to, arrived);
  }

  /// What has come from `senders` messages of that size is added to what the rank has.
  void sum(int rank, int64_t elements, int senders, std::vector<Wait>& arrived) {
    most_ = std::max(most_, elements);
    Task task{.kind = TaskKind::reduce, .waits = arrived};
    task.reads.assign(senders, {.rank = rank, .buffer = 1, .rows = 1, .cols = elements});
    task.reads.push_back({.rank = rank, .buffer = 0, .rows = 1, .cols = elements});
    task.writes = {{.to = task.reads.back()}};
    if (sums_[rank] < 0) {
      sums_[rank] = static_cast<int>(plan_.lanes.size());
      plan_.lanes.push_back({.rank = rank, .engine = Engine::reduce, .name = "sums"});
    }
    arrived.clear();
    add(sums_[rank], std::move(task), rank, arrived);
  }

  /// By rank: what its next step waits for.
  std::vector<std::vector<Wait>>& after() { return after_; }

  Plan take() {
    plan_.buffers = {{.name = "from", .dtype = DType::bf16, .rows = 1, .cols = most_, .scope = Scope::symmetric},
                     {.name = "to", .dtype = DType::bf16, .rows = 1, .cols = most_, .scope = Scope::symmetric}};
    plan_.signals = {{.name = "arrived", .first = 0, .count = std::ranges::max(num_signals_)}};
    return std::move(plan_);
  }

 private:
  // NOTE: all that arrives in one step counts on one signal.
  void add(int lane, Task task, int posts_to, std::vector<Wait>& told) {
    if (told.empty()) told.push_back({.signal = {.rank = posts_to, .index = num_signals_[posts_to]++}, .at_least = 0});
    ++told.front().at_least;
    task.posts = {{.signal = told.front().signal}};
    require(++num_tasks_ <= kMostTasks, "{} devices: the collective has more than {} messages and sums",
            plan_.team.num_ranks, kMostTasks);
    plan_.lanes[lane].tasks.push_back(std::move(task));
  }
  int lane_of(int rank, int lane) {
    std::vector<int>& lanes = lanes_[dimension_][rank];
    while (std::ssize(lanes) <= lane) {
      lanes.push_back(static_cast<int>(plan_.lanes.size()));
      plan_.lanes.push_back({.rank = rank, .engine = Engine::copy, .name = fmt::format("send{}", lanes.size())});
    }
    return lanes[lane];
  }

  Plan plan_;
  std::vector<int> num_signals_;  ///< by rank
  int64_t num_tasks_ = 0;
  int64_t most_ = 0;
  size_t dimension_ = 0;
  std::vector<std::vector<std::vector<int>>> lanes_;  ///< by dimension and rank: lanes that send
  std::vector<int> sums_;                             ///< by rank: the lane that adds
  std::vector<std::vector<Wait>> after_;
};

// One step of all ranks of a group: `send` makes a rank's messages; sums follow where asked for.
void step(Traffic& traffic, const Ranks& group, int senders_to_sum, int64_t elements,
          const std::function<void(int place, const std::vector<Wait>& after, std::vector<std::vector<Wait>>& arrived)>&
              send) {
  std::vector<std::vector<Wait>> arrived(group.size());
  for (int place = 0; place < std::ssize(group); ++place) send(place, traffic.after()[group[place]], arrived);
  for (int place = 0; place < std::ssize(group); ++place) {
    if (senders_to_sum > 0) traffic.sum(group[place], elements, senders_to_sum, arrived[place]);
    traffic.after()[group[place]] = std::move(arrived[place]);
  }
}

// Each rank sends a chunk to the next one, size - 1 times.
void around(Traffic& traffic, const Ranks& group, int64_t chunk, bool sums) {
  const int size = static_cast<int>(group.size());
  for (int i = 1; i < size; ++i) {
    step(traffic, group, sums ? 1 : 0, chunk, [&](int place, const auto& after, auto& arrived) {
      const int next = (place + 1) % size;
      traffic.send(group[place], group[next], chunk, 0, after, arrived[next]);
    });
  }
}

// What goes to the rank d steps ahead is passed on d times: size - 1 chunks first, then one less each time.
void pass_on(Traffic& traffic, const Ranks& group, int64_t chunk) {
  const int size = static_cast<int>(group.size());
  for (int i = 1; i < size; ++i) {
    step(traffic, group, 0, chunk, [&](int place, const auto& after, auto& arrived) {
      const int next = (place + 1) % size;
      for (int one = 0; one < size - i; ++one) {
        traffic.send(group[place], group[next], chunk, 0, after, arrived[next]);
      }
    });
  }
}

// Each rank sends a chunk to every other one at once.
void to_all(Traffic& traffic, const Ranks& group, int64_t chunk, bool sums) {
  const int size = static_cast<int>(group.size());
  if (size == 1) return;
  step(traffic, group, sums ? size - 1 : 0, chunk, [&](int place, const auto& after, auto& arrived) {
    for (int ahead = 1; ahead < size; ++ahead) {
      const int to = (place + ahead) % size;
      traffic.send(group[place], group[to], chunk, ahead - 1, after, arrived[to]);
    }
  });
}

// As libraries do, what does not divide is padded.
int64_t rounded_up(int64_t all, int64_t parts) { return all / parts + (all % parts == 0 ? 0 : 1); }

// Pairs at distance 1, 2, 4 ... exchange a half, a quarter ... of `elements`; gathering goes the same way back.
void halve_or_double(Traffic& traffic, const Ranks& group, int64_t elements, bool sums) {
  const int size = static_cast<int>(group.size());
  std::vector<std::pair<int, int64_t>> steps;  // distance, elements
  for (int distance = 1; distance < size; distance *= 2)
    steps.emplace_back(distance, rounded_up(elements, int64_t{2} * distance));
  if (!sums) std::ranges::reverse(steps);
  for (const auto& [distance, part] : steps) {
    step(traffic, group, sums ? 1 : 0, part, [&](int place, const auto& after, auto& arrived) {
      const int to = place ^ distance;
      traffic.send(group[place], group[to], part, 0, after, arrived[to]);
    });
  }
}

int64_t part_of(int64_t elements, const Ranks& group) { return rounded_up(elements, std::ssize(group)); }

void check_algorithm(Collective collective, CollectiveAlgorithm algorithm, const Ranks& group, const Machine& machine) {
  if (algorithm != CollectiveAlgorithm::halving_doubling) return;
  require(collective != Collective::all_to_all, "algorithm halving_doubling does no all_to_all; ring and direct do");
  require(std::has_single_bit(group.size()),
          "algorithm halving_doubling on {}: {} devices exchange with each other, which is no power of two; ring and "
          "direct take any number",
          machine.name, group.size());
}

void scatter(Traffic& traffic, const Ranks& group, CollectiveAlgorithm algorithm, int64_t elements) {
  if (algorithm == CollectiveAlgorithm::halving_doubling) return halve_or_double(traffic, group, elements, true);
  const int64_t chunk = part_of(elements, group);
  algorithm == CollectiveAlgorithm::ring ? around(traffic, group, chunk, true) : to_all(traffic, group, chunk, true);
}

void gather(Traffic& traffic, const Ranks& group, CollectiveAlgorithm algorithm, int64_t shard) {
  if (algorithm == CollectiveAlgorithm::halving_doubling) {
    return halve_or_double(traffic, group, shard * std::ssize(group), false);
  }
  algorithm == CollectiveAlgorithm::ring ? around(traffic, group, shard, false) : to_all(traffic, group, shard, false);
}

void exchange(Traffic& traffic, const Ranks& group, CollectiveAlgorithm algorithm, int64_t elements) {
  const int64_t chunk = part_of(elements, group);
  algorithm == CollectiveAlgorithm::ring ? pass_on(traffic, group, chunk) : to_all(traffic, group, chunk, false);
}

}  // namespace

Plan collective_plan(Collective collective, CollectiveAlgorithm algorithm, int64_t bytes, const Machine& machine) {
  validate(machine);
  require(collective != Collective::none, "collective_plan: no collective is named");
  require(bytes > 0, "{} bytes: want more than none", bytes);
  const std::vector<std::vector<Ranks>> dims = sim::groups_of(machine.links);
  for (const std::vector<Ranks>& groups : dims) check_algorithm(collective, algorithm, groups.front(), machine);
  int64_t elements = rounded_up(bytes, kElementBytes);
  Traffic traffic(collective, machine, elements);
  const bool scatters = collective == Collective::reduce_scatter || collective == Collective::all_reduce;
  const bool gathers = collective == Collective::all_gather || collective == Collective::all_reduce;
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    traffic.set_dimension(dim);
    for (const Ranks& group : dims[dim]) {
      if (scatters) scatter(traffic, group, algorithm, elements);
      if (collective == Collective::all_to_all) exchange(traffic, group, algorithm, elements);
    }
    if (scatters) elements = part_of(elements, dims[dim].front());
  }
  for (size_t dim = dims.size(); gathers && dim-- > 0;) {
    traffic.set_dimension(dim);
    for (const Ranks& group : dims[dim]) gather(traffic, group, algorithm, elements);
    elements *= std::ssize(dims[dim].front());
  }
  Plan plan = traffic.take();
  validate(plan);
  return plan;
}

}  // namespace tilewire
