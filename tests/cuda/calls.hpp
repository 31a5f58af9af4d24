// Calls of operators on streams and in graphs, with new inputs each time, and hashes of their outputs.
// Used by calls_test.cpp, failures_test.cpp, host_side_test.cpp and trace_test.cpp.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/runtime/driver.hpp"
#include "operators/tensors.hpp"
#include "tilewire/tilewire.hpp"

namespace tilewire::testing {

/// The ranks of a test, and their GPUs.
struct Place {
  const char* name;
  int num_ranks;  ///< at most; fewer if there are fewer GPUs
  bool threads;
  bool one_gpu;

  /// Ranks share a GPU.
  [[nodiscard]] bool shared() const { return one_gpu && num_ranks > 1; }
};
void PrintTo(const Place& place, std::ostream* out);

/// One rank on one GPU; ranks that share a GPU; ranks on GPUs of their own as threads and as processes.
[[nodiscard]] std::vector<Place> places();

/// Tests that run once in every place, each in a child process of its own.
class InPlaces : public ::testing::TestWithParam<Place> {
 protected:
  void SetUp() override;
  /// `body` on all ranks, with the kernels of these tests loaded.
  void launch_ranks(const std::function<void(Group&)>& body, CallOrder order = CallOrder::any) const;

  Place place_{};
};

/// A problem, and a config for it.
struct Sample {
  Problem problem;
  Config config;
};
/// Every operator, and every kind of lane: tiles, sums, copies by worker CTAs and by copy engines.
[[nodiscard]] std::vector<Sample> samples();
/// The same with GEMMs by cuBLASLt: one call or several, with sums after the call or beside it.
[[nodiscard]] std::vector<Sample> library_samples();

/// The same with one NCCL call that moves or sums.
[[nodiscard]] std::vector<Sample> collective_samples();

/// Capture the work that `body` enqueues in the stream as a graph that can be launched. Collective: a capture in global
/// mode forbids other threads of the process to wait for streams, so that all ranks must capture at the same time.
[[nodiscard]] cuda::Graph capture(Group& group, cudaStream_t stream, const std::function<void()>& body);

[[nodiscard]] cuda::Stream new_stream();
void settle(cudaStream_t stream);
/// Bytes that are allocated from the device's pool.
[[nodiscard]] uint64_t used_by_pool();
/// Whether ranks share this rank's GPU, and so its queues: during a call of one rank, the others may only call, too.
[[nodiscard]] bool shares_gpu(const Group& group);
/// Before and after a call: on a shared GPU no rank does anything else during it. Collective.
void keep_in_step(Group& group, cudaStream_t stream);

/// An operator with tensors, a stream and, from the first replay on, a graph of its call.
class Caller {
 public:
  /// Collective if the problem has tensors in the arena. `op` and `group` must outlive it. Without a stream, it makes
  /// one of its own.
  Caller(Group& group, Op& op, cudaStream_t stream = nullptr);

  /// New inputs and poisoned outputs.
  void fill(uint64_t seed) const;
  void run() { op_.run(tensors_.inputs(), tensors_.outputs(), stream_); }
  /// The same in the stream of this handle.
  void run_on(void* handle) { op_.run(tensors_.inputs(), tensors_.outputs(), handle); }
  /// The same; complete on return.
  void run_and_wait() { op_.run_and_wait(tensors_.inputs(), tensors_.outputs()); }
  /// The same with copies of the inputs whose strides are some elements larger: with an odd number, tensor copies
  /// cannot load them.
  void run_and_wait_at_strides(int64_t more = 1);
  /// Capture a call; it may be the first call with these tensors. Collective.
  void make_graph();
  void replay() const { cuda::launch_graph(graph_, stream_); }
  /// Add a hash of the outputs to *sum.
  void hash(uint64_t* sum) const;
  /// Throw Error(wrong_result) unless the outputs equal the reference for the inputs of `seed`.
  void want_right(uint64_t seed) const;
  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  [[nodiscard]] Op& op() const { return op_; }

 private:
  Group& group_;
  Op& op_;
  RankTensors tensors_;
  cuda::Stream own_stream_;
  cudaStream_t stream_;
  cuda::Graph graph_;
  std::vector<std::shared_ptr<std::byte>> strided_memory_;  ///< of the widest stride so far
  int64_t widest_ = 0;
};

/// Sums in device memory, zero at first.
class Hashes {
 public:
  Hashes(Group& group, int64_t count);
  [[nodiscard]] uint64_t* at(int64_t index) const { return reinterpret_cast<uint64_t*>(memory_.get()) + index; }
  /// The present values.
  [[nodiscard]] std::vector<uint64_t> values() const;

 private:
  Group& group_;
  int64_t count_;
  std::shared_ptr<std::byte> memory_;
};

/// Throw Error(wrong_result) with the first difference.
void want_same(const std::vector<uint64_t>& got, const std::vector<uint64_t>& expected, const std::string& what);

}  // namespace tilewire::testing
