// Splits tiles with several waits (Wait::from_col) or addends into several tasks.
// Called by check.cpp.
#include "check/steps.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/gemm_tasks.hpp"

namespace tilewire::checking {
namespace {

class StepMaker {
 public:
  explicit StepMaker(const Plan& plan)
      : all_{plan, {}}, first_signal_(num_signals(plan)), next_signal_(first_signal_) {}

  Steps make() {
    for (Lane& lane : all_.plan.lanes) {
      std::vector<Task> tasks = std::move(lane.tasks);
      lane.tasks.clear();
      all_.places.emplace_back();
      for (Task& task : tasks) {
        if (has_steps(task)) {
          add_steps(lane, std::move(task));
        } else {
          lane.tasks.push_back(std::move(task));
        }
        all_.places.back().resize(lane.tasks.size(), static_cast<int64_t>(&task - tasks.data()));
      }
    }
    if (next_signal_ > first_signal_)
      all_.plan.signals.push_back({"steps of tiles", first_signal_, next_signal_ - first_signal_});
    return std::move(all_);
  }

 private:
  void add_steps(Lane& lane, Task task) {
    const Task tile = task;
    std::erase_if(task.waits, [&](const Wait& wait) { return is_for_addends(tile, wait); });
    std::set<int64_t> cuts{0};
    for (const Wait& wait : task.waits) cuts.insert(wait.from_col);
    for (Wait& wait : task.waits) wait.from_col = 0;
    for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
      const Signal done{lane.rank, next_signal_++};
      lane.tasks.push_back(early_load(tile, *cut, *std::next(cut), done));
      task.waits.push_back({done});
    }
    if (tile.addends.empty()) return lane.tasks.push_back(std::move(task));
    Task sum = sum_of(tile, lane.rank, task);
    lane.tasks.push_back(std::move(task));
    lane.tasks.push_back(std::move(sum));
  }

  /// A task that reads columns [begin, end) of A, and all of B, after the waits for columns up to `begin`, and then
  /// posts.
  [[nodiscard]] static Task early_load(const Task& tile, int64_t begin, int64_t end, Signal done) {
    Task load{.kind = TaskKind::sync, .posts = {{done}}};
    load.reads = tile.reads;
    for (size_t i = 0; i < load.reads.size(); ++i) {
      if (i == 1) continue;
      load.reads[i].col += begin;
      load.reads[i].cols = end - begin;
    }
    for (const Wait& wait : tile.waits) {
      if (wait.from_col > begin || is_for_addends(tile, wait)) continue;
      load.waits.push_back(wait);
      load.waits.back().from_col = 0;
    }
    return load;
  }

  /// The task that completes the sum of a tile with addends. `product` then stores into a buffer of its own.
  Task sum_of(const Task& tile, int rank, Task& product) {
    const Shape shape = result_shape(tile);
    const Region made = new_product(rank, shape, all_.plan.buffers[tile.addends[0].buffer].dtype);
    const Signal done{rank, next_signal_++};
    Task sum{.kind = TaskKind::reduce,
             .reads = tile.addends,
             .writes = tile.writes,
             .waits = {{done}},
             .epilogue = tile.epilogue};
    sum.reads.insert(sum.reads.begin() + tile.product_place, made);
    product.addends.clear();
    product.epilogue.clear();
    product.writes = {{.to = made}};
    product.posts = {{done}};
    for (Wait wait : tile.waits) {
      if (!is_for_addends(tile, wait)) continue;
      wait.from_col = 0;
      for (const Post& post : tile.posts) wait.at_least += post.signal == wait.signal ? post.add : 0;
      sum.waits.push_back(wait);
    }
    for (const Post& post : tile.posts) {
      const bool awaited = std::ranges::any_of(
          tile.waits, [&](const Wait& wait) { return is_for_addends(tile, wait) && wait.signal == post.signal; });
      (awaited ? product : sum).posts.push_back(post);
    }
    return sum;
  }

  Region new_product(int rank, Shape shape, DType dtype) {
    auto& buffers = all_.plan.buffers;
    const auto [found, is_new] = products_.try_emplace(dtype, static_cast<int>(buffers.size()));
    if (is_new) buffers.push_back({.name = "products of tiles", .dtype = dtype});
    Buffer& buffer = buffers[found->second];
    const Region made{
        .rank = rank, .buffer = found->second, .row = buffer.rows, .rows = shape.rows, .cols = shape.cols};
    buffer.rows += shape.rows;
    buffer.cols = std::max(buffer.cols, shape.cols);
    return made;
  }

  Steps all_;
  int first_signal_;
  int next_signal_;
  std::map<DType, int> products_{};  ///< buffers of products; the products of all ranks lie one below the other
};

}  // namespace

bool has_steps(const Task& task) { return loads_early(task) || !task.addends.empty(); }

Steps in_steps(const Plan& plan) { return StepMaker(plan).make(); }

}  // namespace tilewire::checking
