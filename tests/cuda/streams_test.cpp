// Streams by handle: 0 and 1 are the legacy default stream, 2 is the thread's. A call comes after the work in its
// stream, and
// run_and_wait after the work in the legacy stream. Part of the executable of calls_test.cpp.
#include <gtest/gtest.h>

#include "core/text.hpp"
#include "cuda/call_kernels.hpp"
#include "cuda/calls.hpp"
#include "ranks/plans.hpp"

namespace tilewire::testing {
namespace {

constexpr double kPauseUs = 30'000;

class CudaStreams : public InPlaces {};
INSTANTIATE_TEST_SUITE_P(Gpu, CudaStreams, ::testing::ValuesIn(places()),
                         [](const auto& place) { return std::string(place.param.name); });

/// Tiles with sums, and many copies by copy engines.
std::vector<Sample> few_samples() { return {samples().front(), samples().back()}; }

/// Old inputs at once, and new ones after a pause in the caller's stream.
void fill_behind_a_pause(Group& group, const Caller& caller, uint64_t seed) {
  caller.fill(seed);
  settle(caller.stream());
  keep_in_step(group, caller.stream());
  delay(kPauseUs, caller.stream());
  caller.fill(seed + 1);
}

TEST_P(CudaStreams, ACallComesAfterTheWorkOfADefaultStream) {
  launch_ranks([&](Group& group) {
    for (const Sample& sample : few_samples()) {
      Op op = make_op(group, sample.problem, sample.config);
      for (const uintptr_t handle : {0, 1, 2}) {
        if (shares_gpu(group) && handle < 2) continue;
        Caller caller(group, op, handle == 2 ? cudaStreamPerThread : cudaStreamLegacy);
        fill_behind_a_pause(group, caller, 10 * handle);
        if (shares_gpu(group)) settle(caller.stream());
        group.barrier();
        caller.run_on(reinterpret_cast<void*>(handle));
        settle(caller.stream());
        caller.want_right(10 * handle + 1);
      }
    }
  });
}

TEST_P(CudaStreams, RunAndWaitComesAfterTheWorkOfTheLegacyDefaultStream) {
  if (place_.shared()) GTEST_SKIP() << "ranks that share a GPU wait for no stream";
  launch_ranks([&](Group& group) {
    for (const Sample& sample : few_samples()) {
      Op op = make_op(group, sample.problem, sample.config);
      Caller caller(group, op, cudaStreamLegacy);
      fill_behind_a_pause(group, caller, 5);
      caller.run_and_wait();
      caller.want_right(6);
    }
  });
}

TEST_P(CudaStreams, OnSharedGpusTheLegacyDefaultStreamIsRefused) {
  if (!place_.shared()) GTEST_SKIP() << "each rank has a GPU, and its default stream, to itself";
  launch_ranks([&](Group& group) {
    const Sample sample = samples()[0];
    Op op = make_op(group, sample.problem, sample.config);
    Caller caller(group, op);
    for (const uintptr_t handle : {0, 1}) {
      const Error error = error_of([&] { caller.run_on(reinterpret_cast<void*>(handle)); });
      want(error.kind() == ErrorKind::invalid_input, "{}", error.what());
      want(std::string(error.what()).find(fmt::format("stream {}: ranks share a GPU", handle)) != std::string::npos,
           "{}", error.what());
    }
    caller.fill(3);
    settle(caller.stream());
    group.barrier();
    caller.run_and_wait();
    caller.want_right(3);
  });
}

// The legacy default stream takes no work while a stream that waits for it is captured; the capture survives.
TEST_P(CudaStreams, ACaptureElsewhereIsNotSpoilt) {
  if (place_.shared() || (place_.threads && place_.num_ranks > 1)) GTEST_SKIP() << "captures of other ranks' threads";
  launch_ranks([&](Group& group) {
    const Sample sample = samples()[0];
    Op op = make_op(group, sample.problem, sample.config);
    Caller caller(group, op);
    caller.fill(8);
    settle(caller.stream());
    group.barrier();
    cudaStream_t waits = nullptr;
    cuda::check(cudaStreamCreate(&waits), "cudaStreamCreate");
    cuda::check(cudaStreamBeginCapture(waits, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
    const Error error = error_of([&] { caller.run_on(nullptr); });
    want(error.kind() == ErrorKind::invalid_input, "{}", error.what());
    want(std::string(error.what()).find("is captured") != std::string::npos, "{}", error.what());
    caller.run_and_wait();
    cudaGraph_t graph = nullptr;
    cuda::check(cudaStreamEndCapture(waits, &graph), "cudaStreamEndCapture");
    cuda::check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    cuda::check(cudaStreamDestroy(waits), "cudaStreamDestroy");
    caller.want_right(8);
  });
}

}  // namespace
}  // namespace tilewire::testing
