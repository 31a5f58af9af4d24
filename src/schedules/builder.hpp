// A plan under construction: the callers' buffers, workspace, signals, lanes, and the slices that every
// schedule needs (ready handshake, GEMM tiles with split-K). Called by the planners beside it.
#pragma once

#include <string>
#include <vector>

#include "schedules/tile_order.hpp"
#include "tilewire/config.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// As Wait::at_least: all posts that the finished plan makes to the signal; no wait where there are none.
inline constexpr int64_t kAllPosts = 0;

class PlanBuilder {
 public:
  PlanBuilder(const Problem& problem, const Team& team, const Config& config);
  /// The same with the callers' buffers given, for plans of no operator.
  PlanBuilder(const Problem& problem, const Team& team, const Config& config, std::vector<Buffer> buffers);

  [[nodiscard]] int num_ranks() const { return plan_.team.num_ranks; }
  [[nodiscard]] const Problem& problem() const { return problem_; }
  [[nodiscard]] const Config& config() const { return config_; }
  [[nodiscard]] const Plan& plan() const { return plan_; }

  /// Index of a caller's or workspace buffer; it must exist.
  [[nodiscard]] int buffer(const std::string& name) const;
  /// Symmetric workspace is shared with other operators, but for LL data.
  int add_buffer(const std::string& name, DType dtype, int64_t rows, int64_t cols, Scope scope);
  void set_shapes(int buffer, std::vector<Shape> shapes) { plan_.buffers[buffer].shapes = std::move(shapes); }
  /// Its rows are groups (Buffer::extents), as many on each rank as `shapes` says.
  void make_grouped(int buffer, int extents, int64_t most_rows, std::vector<Shape> shapes);
  /// Unless ranks may touch a peer's before it says that it has begun.
  void keep_to_operator(int buffer) { plan_.buffers[buffer].shared = false; }
  /// First index of `count` new signals on every rank.
  int add_signals(const std::string& name, int count);
  int add_lane(int rank, Engine engine, const std::string& name, int workers = 0);
  void add(int lane, Task task);
  /// So many will come.
  void expect_tasks(int lane, int64_t count) { plan_.lanes[lane].tasks.reserve(static_cast<size_t>(count) + 2); }
  /// One post for each signal: a call of the library makes thousands of slices.
  static void merge_posts(Task& task);

  /// A region of a buffer.
  [[nodiscard]] static Region region(int rank, int buffer, Range rows, Range cols);
  /// All of a rank's buffer.
  [[nodiscard]] Region whole(int rank, int buffer) const;
  /// Rows and columns of what a gather's product makes. NOTE: a rank's columns of several outputs are numbered through,
  /// here and wherever a builder is given columns of a product; no tile has those of two.
  [[nodiscard]] Region output(int rank, Range rows, Range cols);
  /// The problem's epilogue on `rank`, for these rows of the residual, and columns of that and of the bias.
  [[nodiscard]] std::vector<EpilogueStep> epilogue(int rank, Range rows, Range cols) const;

  /// Tell every peer that `rank` has begun this call. `lane` must not be waiting for anything yet.
  void say_ready(int rank, int lane);
  /// Posts that say so, for a task that must come first (a fill). With `also_self`.
  [[nodiscard]] std::vector<Post> ready_posts(int rank, bool also_self);
  /// Wait on `rank` until `peer` has begun this call.
  [[nodiscard]] Wait ready(int rank, int peer, Purpose purpose = Purpose::ready);

  /// Lockstep: turn to the next peer when rank + 1 has left it; tell rank - 1 which one this task leaves. `first`: of
  /// signals, one for each phase.
  void pace(Task& task, int rank, int phase, int first) const;

  /// Make room for `most` products on each rank; call before the first add_product.
  void expect_products(int64_t most);
  /// Add one GEMM tile to `lane`: A's rows times B's columns `cols` of `task.writes`' result, with the
  /// waits, posts and epilogue of `task`. With split-K: parts in `lane`, their sum in `sum_lane`.
  void add_product(int lane, int sum_lane, Region a, Range cols, Task task);

  /// Add one GEMM tile, or with fewer columns of A a part of one, as `task` says; `a` need not have all of K.
  void add_part(int lane, Region a, Range cols, Task task);

  /// Add the norms of rows of the output, after `summed`, to `lane`. Nothing if the problem has no norm.
  void add_norms(int lane, int output, Range rows, const Wait& summed);

  /// The finished plan, with every kAllPosts replaced by the signal's total.
  [[nodiscard]] Plan take();

 private:
  /// One of several outputs, and columns of it.
  struct OfOutput {
    size_t output = 0;
    Range cols;
  };
  [[nodiscard]] OfOutput of_output(int rank, Range cols) const;
  [[nodiscard]] Region b_region(int rank, Range cols, Range depth);
  [[nodiscard]] GemmParams gemm_params() const;
  void complete_lanes();

  Problem problem_;
  Config config_;
  Plan plan_;
  int b_ = -1;                               ///< buffer, from the first product on
  int c_ = -1;                               ///< the same, of a gather's
  std::vector<std::vector<Range>> columns_;  ///< by rank, of several outputs
  int ready_ = -1;
  int parts_ = -1;
  int parts_made_ = -1;
  int64_t part_rows_ = 0;       ///< of a part, in `parts`
  std::vector<int> num_parts_;  ///< per rank: split tiles added so far
  int64_t num_tasks_ = 0;
};

/// Whether caller's buffer `name` lies in the arena.
[[nodiscard]] bool in_arena(const Problem& problem, const std::string& name);

}  // namespace tilewire
