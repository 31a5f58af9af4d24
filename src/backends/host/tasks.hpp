// Executes each kind of task on memory.
// Each worker index of a pool has one runner, which keeps its scratch memory between calls. Programs call it when a
// task's waits are over.
#pragma once

#include <functional>
#include <vector>

#include "backends/host/addresses.hpp"
#include "backends/host/gemm.hpp"

namespace tilewire::host {

class TaskRunner {
 public:
  /// Functions of the program that running tasks call. They throw if the call must end.
  struct Callbacks {
    std::function<void()> check;  ///< called often during long tasks
    /// Called before missing LL data are polled again. `deadline_ns`: deadline of this wait; 0 at the first call.
    std::function<void(const Region& missing, int64_t& deadline_ns)> look_again;
  };
  /// Run tasks of `plan` from now on. Forgets cached data, because memory may have changed since the last call.
  /// `callbacks` must live until the next begin_call.
  void begin_call(const Plan& plan, const Addresses& addresses, int gemm_threads, const Callbacks& callbacks);
  void run(const Task& task);

 private:
  using Run = void (TaskRunner::*)(const Task& task);
  [[nodiscard]] static Run runs_of(Body body);
  void multiply(const Task& task);
  /// Compute the result rows of the rows `a` of A; the first one is row `first_row` of the result.
  void multiply_rows(const Task& task, const Block& a, int64_t first_row);
  /// One row of a tile that completes a sum: the product plus the addends. The result is in `spare`, which has room for
  /// two rows.
  float* complete(const Task& task, int64_t row, float* product, float* spare);
  [[nodiscard]] bool stored_by_library(const Task& task) const;
  void pool(const Task& task);
  /// Pool one row; `row` is that of the result, of groups that of memory.
  void pool_row(const Task& task, int64_t row, float* sums);
  void norm(const Task& task);
  void route(const Task& task);
  void grouped_gemm(const Task& task);
  void select(const Task& task);
  void copy(const Task& task);
  /// Copy row by row, from LL data or to LL data.
  void copy_rows(const Task& task);
  void reduce(const Task& task);
  void fill(const Task& task);

  /// Look up the destinations and epilogue operands of a task.
  void prepare_end(const Task& task);
  /// Apply the epilogue to columns [col, col + n) of one row of the result, and store them.
  void finish(const Task& task, int64_t row, int64_t col, int64_t n, float* values);
  /// Round values and store them.
  void store(const float* values, int64_t n, std::byte* to, const Block& of);
  /// Elements [col, col + n) of a row that a task reads: their address, or, for LL data, a copy taken after they have
  /// arrived.
  const std::byte* elements_of(const Region& region, const Block& from, int64_t row, int64_t col, int64_t n);
  void apply_epilogue(const Task& task, int64_t row, int64_t col, int64_t n, float* values);
  float* scratch(int64_t elements);

  const Plan* plan_ = nullptr;
  const Addresses* addresses_ = nullptr;
  const Callbacks* callbacks_ = nullptr;
  Gemm gemm_;
  std::vector<float> scratch_;
  std::vector<float> row_;
  std::vector<std::byte> row_bytes_;
  std::vector<std::byte> taken_;
  std::vector<Block> sources_;
  std::vector<Block> targets_;
  std::vector<std::vector<float>> biases_;
};

}  // namespace tilewire::host
