// What each kind of task does to memory.
// One runner per worker of a pool's calls, which keeps its memory from call to call; called by programs when a task's
// waits are over.
#pragma once

#include <functional>
#include <vector>

#include "backends/host/addresses.hpp"
#include "backends/host/gemm.hpp"

namespace tilewire::host {

class TaskRunner {
 public:
  /// What tasks call of their program while they run; all throw where the call is to end.
  struct Callbacks {
    std::function<void()> check;  ///< often, during long tasks
    /// Where LL data is missing, before it is looked at again. `deadline_ns`: of this wait, 0 at the first call.
    std::function<void(const Region& missing, int64_t& deadline_ns)> look_again;
  };
  /// From now on run tasks of that plan, whose memory may hold other data than at the last call. `callbacks` live until
  /// the next one.
  void begin_call(const Plan& plan, const Addresses& addresses, int gemm_threads, const Callbacks& callbacks);
  void run(const Task& task);

 private:
  using Run = void (TaskRunner::*)(const Task& task);
  [[nodiscard]] static Run runs_of(Body body);
  void multiply(const Task& task);
  /// The rows of a product that so many rows of A make, from `first_row` on.
  void multiply_rows(const Task& task, const Block& a, int64_t first_row);
  /// A row of a tile's product and what is added to it, in `spare`, which has room for two rows.
  float* complete(const Task& task, int64_t row, float* product, float* spare);
  [[nodiscard]] bool stored_by_library(const Task& task) const;
  void pool(const Task& task);
  void copy(const Task& task);
  /// Row by row, from LL data or to it.
  void copy_rows(const Task& task);
  void reduce(const Task& task);
  void fill(const Task& task);

  /// Resolve what the end of a task needs: its destinations and epilogue operands.
  void prepare_end(const Task& task);
  /// Epilogue and stores of columns [col, col + n) of one row of the result.
  void finish(const Task& task, int64_t row, int64_t col, int64_t n, float* values);
  /// Round values and store them.
  void store(const float* values, int64_t n, std::byte* to, const Block& of);
  /// Elements [col, col + n) of a row that a task reads: in place, or, of LL data, when they are there, taken from it.
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
