// The host's side of a call on GPUs: it returns at once and allocates nothing, `auto` measures and remembers, and a
// caller's
// mistakes give an Error without damage.
// NOTE: run the executable alone, or `ctest -L gpu`; every test starts CUDA in a child process of its own.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <limits>
#include <vector>

#include "backends/cuda/runtime/facts.hpp"
#include "backends/cuda/vendor/cublaslt.hpp"
#include "core/text.hpp"
#include "cuda/call_kernels.hpp"
#include "cuda/calls.hpp"
#include "ranks/plans.hpp"
#include "tilewire/print.hpp"

namespace tilewire::testing {
namespace {

class HostSide : public InPlaces {};
INSTANTIATE_TEST_SUITE_P(Gpu, HostSide, ::testing::ValuesIn(places()),
                         [](const auto& place) { return std::string(place.param.name); });

void want_refusal(ErrorKind kind, const std::string& words, const std::function<void()>& body) {
  const Error error = error_of(body);
  want(error.kind() == kind && std::string(error.what()).find(words) != std::string::npos, "want '{}', got '{}: {}'",
       words, to_string(error.kind()), error.what());
}

/// A correct call in step with the other ranks.
void call_and_want_right(Group& group, Caller& caller, uint64_t seed) {
  caller.fill(seed);
  settle(caller.stream());
  group.barrier();
  caller.run_and_wait();
  caller.want_right(seed);
}

TEST_P(HostSide, ARunReturnsBeforeItsCallBegins) {
  if (place_.shared()) GTEST_SKIP() << "ranks that share a GPU wait for the call's end";
  constexpr double kDelayUs = 100'000;
  launch_ranks([&](Group& group) {
    auto all = samples();
    const auto more = cuda::missing_cublaslt() ? std::vector<Sample>{} : library_samples();
    all.insert(all.end(), more.begin(), more.end());
    for (const Sample& sample : all) {
      Op op = make_op(group, sample.problem, sample.config);
      Caller caller(group, op);
      caller.fill(1);
      caller.run();  // makes the tables for these tensors
      settle(caller.stream());
      group.barrier();
      caller.fill(2);
      settle(caller.stream());
      const uint64_t used = used_by_pool();
      group.barrier();
      delay(kDelayUs, caller.stream());
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < 3; ++i) caller.run();
      const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
      const bool under_way = cudaStreamQuery(caller.stream()) == cudaErrorNotReady;
      want(under_way && took.count() < kDelayUs / 2, "{}: three calls behind {} us of other work took the host {} us",
           to_string(sample.config), kDelayUs, took.count());
      want(used_by_pool() == used, "{}: {} bytes in use before the calls, {} after them", to_string(sample.config),
           used, used_by_pool());
      settle(caller.stream());
      group.barrier();
      caller.want_right(2);
    }
  });
}

TEST_P(HostSide, AutoMeasuresAndRemembers) {
  const auto file = std::filesystem::temp_directory_path() / fmt::format("tilewire_auto_{}.json", getpid());
  std::filesystem::remove(file);
  OpOptions options;
  options.tuner_file = file.string();
  launch_ranks([&](Group& group) {
    for (const char* name : {"all_gather_gemm", "gemm_all_reduce"}) {
      const Problem problem{.op = name, .m = 512, .n = 512, .k = 256};
      std::string first;
      for (const char* words : {"measured", "remembered from"}) {
        Op op = make_op(group, problem, std::nullopt, options);
        want(op.explain().find(words) != std::string::npos, "want '{}' in: {}", words, op.explain());
        if (first.empty()) first = to_string(op.config());
        want(to_string(op.config()) == first, "{} was remembered as {}", first, to_string(op.config()));
        Caller caller(group, op);
        call_and_want_right(group, caller, 7);
      }
    }
  });
  EXPECT_TRUE(std::filesystem::remove(file)) << "no winners were written";
}

TEST_P(HostSide, WrongPointersAreToldWithoutHarm) {
  launch_ranks([&](Group& group) {
    const Sample sample = samples()[0];
    Op op = make_op(group, sample.problem, sample.config);
    const RankTensors tensors(group, sample.problem);
    std::vector<Tensor> inputs(tensors.inputs().begin(), tensors.inputs().end());
    std::vector<std::byte> of_the_host(inputs[0].rows * inputs[0].cols * bytes_of(inputs[0].dtype));
    inputs[0].data = of_the_host.data();
    want_refusal(ErrorKind::invalid_input, "CUDA does not know", [&] { op.run_and_wait(inputs, tensors.outputs()); });
    inputs[0].data = static_cast<std::byte*>(tensors.inputs()[0].data) + 1;
    want_refusal(ErrorKind::invalid_input, "multiple of", [&] { op.run_and_wait(inputs, tensors.outputs()); });
    Caller caller(group, op);
    call_and_want_right(group, caller, 3);
  });
}

TEST_P(HostSide, EmptyTensorsMayLieAnywhere) {
  launch_ranks([&](Group& group) {
    // All ranks but the first have no rows.
    const Problem problem{.op = "all_gather_gemm", .m = 1, .n = 64, .k = 64};
    Op op = make_op(group, problem, Config{.tile_m = 64, .tile_n = 128});
    const RankTensors tensors(group, problem);
    std::vector<Tensor> inputs(tensors.inputs().begin(), tensors.inputs().end());
    if (inputs[0].rows == 0) inputs[0].data = reinterpret_cast<void*>(uintptr_t{64});
    group.barrier();
    op.run_and_wait(inputs, tensors.outputs());
  });
}

TEST_P(HostSide, AStreamOfAnotherGpuIsRefused) {
  if (place_.one_gpu) GTEST_SKIP() << "only one GPU is seen";
  launch_ranks([&](Group& group) {
    const Sample sample = samples()[0];
    Op op = make_op(group, sample.problem, sample.config);
    int mine = 0;
    cuda::check(cudaGetDevice(&mine), "cudaGetDevice");
    cuda::check(cudaSetDevice((mine + 1) % cuda::num_gpus()), "cudaSetDevice");
    const cuda::Stream elsewhere = new_stream();
    cuda::check(cudaSetDevice(mine), "cudaSetDevice");
    Caller lost(group, op, elsewhere.get());
    want_refusal(ErrorKind::invalid_input, "the stream is one of GPU", [&] { lost.run(); });
    Caller caller(group, op);
    call_and_want_right(group, caller, 4);
  });
}

TEST_P(HostSide, ACallLeavesTheCurrentDeviceAsItWas) {
  if (place_.one_gpu) GTEST_SKIP() << "only one GPU is seen";
  launch_ranks([&](Group& group) {
    const Sample sample = samples()[0];
    Op op = make_op(group, sample.problem, sample.config);
    Caller caller(group, op);
    caller.fill(4);
    int mine = 0;
    cuda::check(cudaGetDevice(&mine), "cudaGetDevice");
    const int other = (mine + 1) % cuda::num_gpus();
    cuda::check(cudaSetDevice(other), "cudaSetDevice");
    cuda::check(cudaFree(nullptr), "cudaFree");  // its context is there from now on
    group.barrier();
    caller.run();
    int now = -1;
    cuda::check(cudaGetDevice(&now), "cudaGetDevice");
    want(now == other, "GPU {} is the current one, not {}", now, other);
    op.wait();
    cuda::check(cudaGetDevice(&now), "cudaGetDevice");
    want(now == other, "GPU {} is the current one, not {}", now, other);
    cuda::check(cudaSetDevice(mine), "cudaSetDevice");
    settle(caller.stream());
    caller.want_right(4);
  });
}

TEST_P(HostSide, AnErrorThatTheCallerLeftBehindIsNotOurs) {
  launch_ranks([&](Group& group) {
    for (const Sample& sample : samples()) {
      Op op = make_op(group, sample.problem, sample.config);
      Caller caller(group, op);
      caller.fill(5);
      settle(caller.stream());
      group.barrier();
      static_cast<void>(cudaSetDevice(std::numeric_limits<int>::max()));
      caller.run_and_wait();
      static_cast<void>(cudaGetLastError());  // the kernels of these tests ask for it
      caller.want_right(5);
    }
  });
}

}  // namespace
}  // namespace tilewire::testing
