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

/// Ranks of a test and where they run.
struct Place {
  const char* name;
  int num_ranks;  ///< at most: not more than there are GPUs
  bool threads;
  bool one_gpu;

  /// Ranks share a GPU.
  [[nodiscard]] bool shared() const { return one_gpu && num_ranks > 1; }
};
void PrintTo(const Place& place, std::ostream* out);

/// One rank on one GPU, ranks that share one, ranks on their own GPUs as threads and as processes.
[[nodiscard]] std::vector<Place> places();

/// Tests that run once in every place, each in a child of its own.
class InPlaces : public ::testing::TestWithParam<Place> {
 protected:
  void SetUp() override;
  /// `body` on all ranks, with the kernels of these tests loaded.
  void launch_ranks(const std::function<void(Group&)>& body, CallOrder order = CallOrder::any) const;

  Place place_{};
};

/// A problem and a way to do it.
struct Sample {
  Problem problem;
  Config config;
};
/// Every operator, and every kind of lane: tiles, sums, copies by worker CTAs and by copy engines.
[[nodiscard]] std::vector<Sample> samples();
/// The same where cuBLASLt multiplies: in one call and in several, with sums after it and beside it.
[[nodiscard]] std::vector<Sample> library_samples();

/// The same where NCCL moves, or sums, in one call.
[[nodiscard]] std::vector<Sample> collective_samples();

/// What `body` enqueues in the stream, as a graph that is ready to be launched. Collective: a capture in the global
/// mode forbids other threads of the process to wait for streams and the like, so that all capture at the same time.
[[nodiscard]] cuda::Graph capture(Group& group, cudaStream_t stream, const std::function<void()>& body);

[[nodiscard]] cuda::Stream new_stream();
void settle(cudaStream_t stream);
/// Bytes that are taken from the device's pool.
[[nodiscard]] uint64_t used_by_pool();
/// Whether ranks share my GPU, and so its queues: while a call of one is under way, nobody may do anything but call.
[[nodiscard]] bool shares_gpu(const Group& group);
/// Before and after a call: where ranks share a GPU, nobody does anything else meanwhile. Collective.
void keep_in_step(Group& group, cudaStream_t stream);

/// An operator with tensors, a stream, and, from the first time it is asked for, a graph of its call.
class Caller {
 public:
  /// Collective where the problem has tensors in the arena. `op` and `group` outlive it. Without a stream, it has one
  /// of its own.
  Caller(Group& group, Op& op, cudaStream_t stream = nullptr);

  /// New inputs and poisoned outputs.
  void fill(uint64_t seed) const;
  void run() { op_.run(tensors_.inputs(), tensors_.outputs(), stream_); }
  /// The same in the stream of this handle.
  void run_on(void* handle) { op_.run(tensors_.inputs(), tensors_.outputs(), handle); }
  /// The same, over on return.
  void run_and_wait() { op_.run_and_wait(tensors_.inputs(), tensors_.outputs()); }
  /// The same with copies of the inputs at strides of so many elements more: with an odd number no tensor load can take
  /// them.
  void run_and_wait_at_strides(int64_t more = 1);
  /// Capture a call, which may be the first with these tensors. Collective.
  void make_graph();
  void replay() const { cuda::launch_graph(graph_, stream_); }
  /// Add a hash of the outputs to *sum.
  void hash(uint64_t* sum) const;
  /// Throw Error(wrong_result) unless the outputs are what the inputs of `seed` give, by the reference.
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
  /// As they are now.
  [[nodiscard]] std::vector<uint64_t> values() const;

 private:
  Group& group_;
  int64_t count_;
  std::shared_ptr<std::byte> memory_;
};

/// Throw Error(wrong_result) with the first difference.
void want_same(const std::vector<uint64_t>& got, const std::vector<uint64_t>& expected, const std::string& what);

}  // namespace tilewire::testing
