// What each kind of task does to memory.
// One runner per worker of a lane; called by programs when a task's waits are over.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "backends/host/addresses.hpp"
#include "backends/host/gemm.hpp"

namespace tilewire::host {

class TaskRunner {
 public:
  /// `check` is called often during long tasks, and throws where the call is to end.
  TaskRunner(const Plan& plan, const Addresses& addresses, int gemm_threads, std::function<void()> check)
      : plan_(plan), addresses_(addresses), check_(std::move(check)), gemm_(gemm_threads, check_) {}
  /// A new call: memory may hold other data.
  void begin_call() { gemm_.forget(); }
  void run(const Task& task);

 private:
  void multiply(const Task& task);
  [[nodiscard]] bool stored_by_library(const Task& task) const;
  void pool(const Task& task);
  void copy(const Task& task);
  void reduce(const Task& task);
  void fill(const Task& task);

  /// Resolve what the end of a task needs: its destinations and epilogue operands.
  void prepare_end(const Task& task);
  /// Epilogue and stores of columns [col, col + n) of one row of the result.
  void finish(const Task& task, int64_t row, int64_t col, int64_t n, float* values);
  void apply_epilogue(const Task& task, int64_t row, int64_t col, int64_t n, float* values);
  float* scratch(int64_t elements);

  const Plan& plan_;
  const Addresses& addresses_;
  std::function<void()> check_;
  Gemm gemm_;
  std::vector<float> scratch_;
  std::vector<float> row_;
  std::vector<Block> sources_;
  std::vector<Block> targets_;
  std::vector<std::vector<float>> biases_;
};

}  // namespace tilewire::host
