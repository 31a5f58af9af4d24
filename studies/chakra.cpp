// Goes through a plan with one worker for each lane, one lane after the other, and makes the nodes of each task.
// Called by chakra_files.cpp and tests.
#include "studies/chakra.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/bodies.hpp"
#include "core/gemm_tasks.hpp"
#include "core/implied_order.hpp"
#include "core/text.hpp"
#include "schedules/parts.hpp"
#include "tilewire/print.hpp"

namespace tilewire::cli {
namespace {

using Ids = std::vector<uint64_t>;

struct Deps {
  Ids data;
  Ids ctrl;
};

// A task that has posted.
struct Done {
  int rank = 0;
  Ids end;                     // nodes of its own rank: when they have ended, it has posted
  std::map<int, Ids> arrived;  // by other rank: the nodes that have received the task's data
};

struct Posted {
  const Done* by = nullptr;
  int64_t add = 0;
};

class Tracer {
 public:
  explicit Tracer(const Plan& plan)
      : plan_(plan),
        num_ranks_(plan.team.num_ranks),
        posts_(static_cast<size_t>(num_ranks_) * num_signals(plan)),
        counts_(posts_.size()),
        waiters_(posts_.size()),
        meetings_(num_ranks_),
        tags_(static_cast<size_t>(num_ranks_) * num_ranks_) {
    traces_.ranks.resize(num_ranks_);
    for (const Lane& lane : plan.lanes) {
      done_.emplace_back(lane.tasks.size());
      for (const Task& task : lane.tasks) {
        for (const Wait& wait : task.waits) {
          waiters_[signal_id(plan_, wait.signal)].insert(lane.rank);
          ++uses_[{lane.rank, signal_id(plan_, wait.signal), wait.at_least}];
        }
      }
    }
  }

  ChakraTraces take(int64_t begin_bytes) {
    next_.assign(plan_.lanes.size(), 0);
    for (std::vector<ChakraNode>& nodes : traces_.ranks)
      nodes.push_back({.name = "begin", .memory_bytes = begin_bytes});
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t lane = 0; lane < next_.size(); ++lane) {
        if (!may_start(lane)) continue;
        run(lane);
        moved = true;
      }
    }
    for (size_t lane = 0; lane < next_.size(); ++lane) {
      if (next_[lane] == plan_.lanes[lane].tasks.size()) continue;
      fail(ErrorKind::refused_plan, "the plan deadlocks at {}",
           task_name(plan_, static_cast<int>(lane), static_cast<int64_t>(next_[lane])));
    }
    return std::move(traces_);
  }

 private:
  // The nodes of one task so far.
  struct Step {
    const Task& task;
    int rank;
    std::string name;
    Deps begin;    // of its start
    Ids pulled{};  // receives of its reads from peers
  };

  int64_t bytes_of_region(const Region& region) const {
    return region.rows * region.cols * bytes_of(plan_.buffers[region.buffer].dtype);
  }

  // Whether a lane's next task may start: its signals are there, and for a collective all ranks are.
  bool may_start(size_t lane) {
    const Lane& where = plan_.lanes[lane];
    if (next_[lane] == where.tasks.size()) return false;
    const Task& task = where.tasks[next_[lane]];
    for (const Wait& wait : task.waits) {
      if (counts_[signal_id(plan_, wait.signal)] < wait.at_least) return false;
    }
    if (task.kind != TaskKind::collective_call) return true;
    Meetings& mine = meetings_[where.rank];
    mine.reached = mine.ended + 1;
    return std::ranges::all_of(meetings_, [&](const Meetings& other) { return other.reached >= mine.reached; });
  }

  uint64_t add(int rank, ChakraNode node, Deps deps) {
    const auto tidy = [](Ids& ids) {
      std::ranges::sort(ids);
      ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    };
    tidy(deps.data);
    tidy(deps.ctrl);
    std::erase_if(deps.ctrl, [&](uint64_t id) { return std::ranges::binary_search(deps.data, id); });
    if (deps.data.empty() && deps.ctrl.empty() && node.kind != ChakraKind::receive) deps.ctrl = {0};
    node.id = traces_.ranks[rank].size();
    node.data_deps = std::move(deps.data);
    node.ctrl_deps = std::move(deps.ctrl);
    traces_.ranks[rank].push_back(std::move(node));
    return traces_.ranks[rank].back().id;
  }

  // Add a message that begins after `deps`. Returns its send and its receive.
  std::pair<uint64_t, uint64_t> message(const std::string& name, int from, int to, int64_t bytes, Deps deps) {
    const int tag = tags_[static_cast<size_t>(from) * num_ranks_ + to]++;
    const ChakraNode node{.name = name, .kind = ChakraKind::send, .bytes = bytes, .peer = to, .tag = tag};
    const uint64_t sent = add(from, node, std::move(deps));
    ChakraNode other = node;
    other.kind = ChakraKind::receive;
    other.peer = from;
    return {sent, add(to, std::move(other), {})};
  }

  // The nodes that a wait depends on: the first posts, in their order, that add up to the threshold. Equal waits share
  // a join.
  Ids wait_ids(int rank, const Wait& wait) {
    const size_t signal = signal_id(plan_, wait.signal);
    const std::tuple key{rank, signal, wait.at_least};
    if (const auto known = joins_.find(key); known != joins_.end()) return {known->second};
    Ids ids;
    int64_t count = 0;
    for (size_t i = 0; count < wait.at_least; ++i) {
      const Posted& post = posts_[signal][i];
      const Ids& more = post.by->rank == rank ? post.by->end : post.by->arrived.at(rank);
      ids.insert(ids.end(), more.begin(), more.end());
      count += post.add;
    }
    if (ids.size() < 2 || uses_.at(key) < 2) return ids;
    const uint64_t join = add(rank, {.name = fmt::format("join {}", signal_name(plan_, wait.signal))}, {.data = ids});
    joins_[key] = join;
    return {join};
  }

  Deps begin_of(size_t lane, const Task& task) {
    const Lane& where = plan_.lanes[lane];
    Deps deps;
    for (const Wait& wait : task.waits) {
      const Ids ids = wait_ids(where.rank, wait);
      Ids& to = wait.purpose == Purpose::data ? deps.data : deps.ctrl;
      to.insert(to.end(), ids.begin(), ids.end());
    }
    if (is_serial(where.engine) && next_[lane] > 0) {
      const Ids& before = done_[lane][next_[lane] - 1].end;
      deps.ctrl.insert(deps.ctrl.end(), before.begin(), before.end());
    }
    return deps;
  }

  // Add the messages by which peers send what the task reads from them, after a request.
  void pull(Step& step) {
    for (const Region& read : all_reads(step.task)) {
      const int64_t bytes = bytes_of_region(read);
      if (read.rank == step.rank || bytes == 0) continue;
      const uint64_t asked = message(step.name + " ask", step.rank, read.rank, 1, step.begin).second;
      step.pulled.push_back(message(step.name + " read", read.rank, step.rank, bytes, {.data = {asked}}).second);
    }
  }

  int64_t num_ops(const Task& task) const {
    const Shape shape = result_shape(task);
    const int64_t elements = shape.rows * shape.cols;
    switch (task.kind) {
      case TaskKind::compute:
      case TaskKind::gemm_call:
        return static_cast<int64_t>(facts_of(task.body).ops(task)) + elements * std::ssize(task.addends);
      case TaskKind::reduce:
        return elements * std::ssize(task.reads);
      default:
        return 0;
    }
  }

  // NOTE: a region that several GEMMs read counts for the first of them: after that it is in the cache.
  int64_t memory_bytes(const Step& step) {
    const bool cached = computes(step.task);
    int64_t bytes = 0;
    const auto read = [&](const Region& region) {
      if (region.rank != step.rank) return;
      const std::tuple key{region.rank, region.buffer, region.row, region.rows, region.col, region.cols};
      if (!cached || read_.insert(key).second) bytes += bytes_of_region(region);
    };
    for (const Region& region : all_reads(step.task)) read(region);
    for (const EpilogueStep& each : step.task.epilogue) {
      if (each.operand) read(*each.operand);
    }
    for (const Write& write : step.task.writes) {
      if (write.to.rank != step.rank) continue;
      bytes += bytes_of_region(write.to) * (write.mode == WriteMode::accumulate ? 2 : 1);
    }
    return bytes;
  }

  // Whether the task needs compute units or the rank's memory.
  bool is_work(const Step& step) const {
    const auto here = [&](const Region& region) { return region.rank == step.rank && bytes_of_region(region) > 0; };
    const bool writes = std::ranges::any_of(step.task.writes, [&](const Write& write) { return here(write.to); });
    switch (step.task.kind) {
      case TaskKind::copy:
        return writes && here(step.task.reads[0]);
      case TaskKind::compute:
      case TaskKind::gemm_call:
      case TaskKind::reduce:
        return num_ops(step.task) > 0;
      case TaskKind::fill:
        return writes;
      default:
        return false;
    }
  }

  // Add the task's work besides messages. Returns what its messages to peers depend on.
  Deps body(Step& step) {
    Deps deps = step.begin;
    deps.data.insert(deps.data.end(), step.pulled.begin(), step.pulled.end());
    ChakraNode node{.name = step.name};
    if (step.task.kind == TaskKind::collective_call) {
      node.kind = ChakraKind::collective;
      node.collective = step.task.collective;
      node.bytes = std::max<int64_t>(1, bytes_of_region(step.task.reads[0]));
      ++meetings_[step.rank].ended;
    } else if (is_work(step)) {
      node.num_ops = std::max<int64_t>(1, num_ops(step.task));
      node.memory_bytes = std::max<int64_t>(1, memory_bytes(step));
    } else {
      const bool sends = std::ranges::any_of(step.task.writes, [&](const Write& write) {
        return write.to.rank != step.rank && bytes_of_region(write.to) > 0;
      });
      if (sends) return deps;
      if (!step.pulled.empty()) return {.data = step.pulled};
    }
    return {.data = {add(step.rank, std::move(node), std::move(deps))}};
  }

  void run(size_t lane) {
    const Lane& where = plan_.lanes[lane];
    const Task& task = where.tasks[next_[lane]];
    Step step{task, where.rank, fmt::format("{}[{}] {}", where.name, next_[lane], to_string(task.kind)),
              begin_of(lane, task)};
    pull(step);
    const Deps after = body(step);
    Done& done = done_[lane][next_[lane]];
    done.rank = where.rank;
    for (const Write& write : task.writes) {
      const int64_t bytes = bytes_of_region(write.to);
      if (write.to.rank == where.rank || bytes == 0) continue;
      const auto [sent, received] = message(step.name + " write", where.rank, write.to.rank, bytes, after);
      done.end.push_back(sent);
      done.arrived[write.to.rank].push_back(received);
    }
    if (done.end.empty()) done.end = after.data;
    post(step, done);
    ++next_[lane];
  }

  // A post without data is a message of one byte to each rank that waits for the signal.
  void post(const Step& step, Done& done) {
    for (const Post& each : step.task.posts) {
      const size_t signal = signal_id(plan_, each.signal);
      posts_[signal].push_back({&done, each.add});
      counts_[signal] += each.add;
      for (const int waiter : waiters_[signal]) {
        if (waiter == step.rank || done.arrived.contains(waiter)) continue;
        done.arrived[waiter] = {message(step.name + " post", step.rank, waiter, 1, {.data = done.end}).second};
      }
    }
  }

  // How many collectives a rank has reached, and how many of them have ended.
  struct Meetings {
    int64_t reached = 0;
    int64_t ended = 0;
  };

  const Plan& plan_;
  int num_ranks_;
  ChakraTraces traces_;
  std::vector<size_t> next_;             // by lane
  std::vector<std::vector<Done>> done_;  // by lane and task
  std::vector<std::vector<Posted>> posts_;
  std::vector<int64_t> counts_;
  std::vector<std::set<int>> waiters_;
  std::map<std::tuple<int, size_t, int64_t>, int64_t> uses_;  // number of tasks of a rank with the same wait
  std::map<std::tuple<int, size_t, int64_t>, uint64_t> joins_;
  std::vector<Meetings> meetings_;
  std::vector<int> tags_;  // next, by [from * num_ranks + to]
  std::set<std::tuple<int, int, int64_t, int64_t, int64_t, int64_t>> read_;
};

}  // namespace

ChakraTraces chakra_of(const Plan& plan, int64_t begin_bytes) {
  validate(plan);
  return in_full_order(plan, [&](const Plan& ordered) { return Tracer(ordered).take(begin_bytes); });
}

}  // namespace tilewire::cli
