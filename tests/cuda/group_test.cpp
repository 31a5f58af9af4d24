// Groups of GPUs: joining, memory that peers address, growth, failures, and no leaks.
// NOTE: run the executable alone, or `ctest -L gpu`; every test starts CUDA in a child process of its own.
#include "backends/cuda/runtime/group.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ostream>
#include <thread>

#include "backends/cuda/runtime/facts.hpp"
#include "cuda/child.hpp"
#include "cuda/kernels.hpp"
#include "ranks/plans.hpp"

namespace tilewire {
namespace {

using cuda::CudaGroup;
using testing::count_wrong_words;
using testing::error_of;
using testing::in_child;
using testing::store_words;
using testing::want;

constexpr int64_t kMiB = 1 << 20;

/// The ranks of a test, and their GPUs.
struct Mode {
  const char* name;
  int num_ranks;
  bool threads;
  bool one_gpu;
};

void PrintTo(const Mode& mode, std::ostream* out) { *out << mode.name; }

constexpr Mode kModes[] = {{"two_ranks_on_one_gpu", 2, true, true},
                           {"four_ranks_on_one_gpu", 4, true, true},
                           {"threads_on_their_gpus", 4, true, false},
                           {"processes", 4, false, false}};

class CudaGroups : public ::testing::TestWithParam<Mode> {
 protected:
  void SetUp() override {
    if (const auto reason = cuda::cuda_unavailable()) GTEST_SKIP() << *reason;
    mode_ = GetParam();
    if (mode_.one_gpu) return;
    mode_.num_ranks = std::min(mode_.num_ranks, testing::num_gpus_here());
    if (mode_.num_ranks < 2) GTEST_SKIP() << "this machine has fewer than 2 GPUs";
  }

  [[nodiscard]] LaunchOptions options(double timeout_s = 60) const {
    LaunchOptions options{.backend = "cuda", .threads = mode_.threads};
    options.timeout_s = timeout_s;
    return options;
  }
  void prepare() const {
    if (mode_.one_gpu) testing::see_one_gpu();
  }
  /// Launch in the calling process.
  void launch_here(const LaunchOptions& how, const std::function<void(CudaGroup&)>& body) const {
    launch(mode_.num_ranks, how, [&](Group& group) { body(dynamic_cast<CudaGroup&>(group)); });
  }
  void launch_ranks(const std::function<void(CudaGroup&)>& body, double timeout_s = 60) const {
    in_child([&] {
      prepare();
      launch_here(options(timeout_s), body);
      return std::string();
    });
  }

  Mode mode_{};
};
INSTANTIATE_TEST_SUITE_P(Gpu, CudaGroups, ::testing::ValuesIn(kModes),
                         [](const auto& mode) { return std::string(mode.param.name); });

uint32_t seed_of(int writer, int round) { return static_cast<uint32_t>(1'000'003 * (writer + 1) + 77 * round); }

/// Every rank stores to its right neighbour's tensor, then checks its own, and the right neighbour's by loads.
void exchange_words(CudaGroup& group, const Tensor& tensor, int round) {
  const int num_ranks = group.team().num_ranks;
  const int right = (group.rank() + 1) % num_ranks;
  const int left = (group.rank() + num_ranks - 1) % num_ranks;
  const int64_t offset = static_cast<std::byte*>(tensor.data) - group.at(group.rank(), 0);
  const int64_t count = tensor.rows * tensor.cols;
  auto* theirs = reinterpret_cast<uint32_t*>(group.at(right, offset));
  group.barrier();
  store_words(theirs, count, seed_of(group.rank(), round));
  group.barrier();
  const int64_t wrong = count_wrong_words(static_cast<uint32_t*>(tensor.data), count, seed_of(left, round));
  want(wrong == 0, "round {}: {} of {} words from rank {} are wrong on rank {}", round, wrong, count, left,
       group.rank());
  const int64_t wrong_there = count_wrong_words(theirs, count, seed_of(group.rank(), round));
  want(wrong_there == 0, "round {}: rank {} loads {} wrong words from rank {}", round, group.rank(), wrong_there,
       right);
  group.barrier();
}

TEST_P(CudaGroups, TeamDeviceAndHead) {
  launch_ranks([&](CudaGroup& group) {
    want(group.backend() == "cuda" && group.team().num_ranks == mode_.num_ranks, "team");
    want(std::ssize(group.team().devices) == mode_.num_ranks, "{} devices", group.team().devices.size());
    const int sharing = mode_.one_gpu ? mode_.num_ranks : 1;
    int sms = 0;
    cuda::check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, group.device()), "attribute");
    want(group.target().sms == sms / sharing, "{} of {} SMs", group.target().sms, sms);
    cuda::Head head{.abort = 7};
    cuda::check(cudaMemcpy(&head, group.head(group.rank()), sizeof(head), cudaMemcpyDefault), "cudaMemcpy");
    want(head.abort == 0, "the abort word is {}", head.abort);
    auto* page = reinterpret_cast<uint32_t*>(group.status_page() + cuda::kFreeStatus);
    store_words(page, (cuda::kStatusBytes - cuda::kFreeStatus) / 4, 5);
    want(page[9] == 14, "the status page does not reach the host");
    group.barrier();
  });
}

TEST_P(CudaGroups, TensorsAreZeroAndPeersReachThem) {
  launch_ranks([](CudaGroup& group) {
    const Tensor small = group.allocate(DType::fp32, 3, 5);
    const Tensor empty = group.allocate(DType::bf16, 0, 7);
    const Tensor large = group.allocate(DType::fp32, 1024, 2048);
    want(empty.rows == 0 && small.row_stride == 5, "shapes");
    std::vector<float> values(1024 * 2048, 1);
    cuda::check(cudaMemcpy(values.data(), large.data, values.size() * 4, cudaMemcpyDefault), "cudaMemcpy");
    want(std::all_of(values.begin(), values.end(), [](float value) { return value == 0; }), "not zero");
    for (int round = 0; round < 3; ++round) {
      exchange_words(group, large, round);
      exchange_words(group, small, round);
    }
  });
}

TEST_P(CudaGroups, CopiesReachPeers) {
  launch_ranks([](CudaGroup& group) {
    const Tensor tensor = group.allocate(DType::fp32, 1024, 1024);
    const int64_t offset = static_cast<std::byte*>(tensor.data) - group.at(group.rank(), 0);
    const int right = (group.rank() + 1) % group.team().num_ranks;
    const std::vector<float> sent(1024 * 1024, static_cast<float>(group.rank() + 1));
    cuda::check(cudaMemcpy(group.at(right, offset), sent.data(), sent.size() * 4, cudaMemcpyDefault), "to a peer");
    group.barrier();
    std::vector<float> received(sent.size());
    cuda::check(cudaMemcpy(received.data(), tensor.data, sent.size() * 4, cudaMemcpyDefault), "from mine");
    const int left = (group.rank() + group.team().num_ranks - 1) % group.team().num_ranks;
    want(received[12345] == static_cast<float>(left + 1), "got {} from rank {}", received[12345], left);
    group.barrier();
  });
}

TEST_P(CudaGroups, MemoryGrowsAndStaysWhereItIs) {
  launch_ranks([](CudaGroup& group) {
    const Tensor first = group.allocate(DType::fp32, 1024, 1024);
    exchange_words(group, first, 0);
    std::byte* const base = group.at(0, 0);
    // Beyond the first chunk, across its end, and beyond what doubling gives.
    const Tensor second = group.allocate(DType::fp32, 100 * kMiB / 4096, 1024);
    const Tensor third = group.allocate(DType::fp32, 400 * kMiB / 4096, 1024);
    want(group.at(0, 0) == base, "the arena moved");
    const int left = (group.rank() + group.team().num_ranks - 1) % group.team().num_ranks;
    want(count_wrong_words(static_cast<uint32_t*>(first.data), kMiB, seed_of(left, 0)) == 0,
         "the first tensor changed");
    group.barrier();
    exchange_words(group, second, 1);
    exchange_words(group, third, 2);
    // Carved, given back by all, and carved again: no growth, hence the same place.
    const host::Extent part = group.carve("a part", 10 * kMiB);
    group.give_back(part);
    const host::Extent again = group.carve("a part", 10 * kMiB);
    want(again.offset == part.offset, "{} and {}", part.offset, again.offset);
    const Tensor freed = group.allocate(DType::fp32, 1024, 1024);
    group.free(freed);
    want(group.allocate(DType::fp32, 1024, 1024).data == freed.data, "freed memory is not used again");
  });
}

TEST_P(CudaGroups, AFullGpuIsNamedAndTheGroupLives) {
  in_child([&] {
    prepare();
    LaunchOptions how = options();
    how.arena_bytes = int64_t{256} << 30;
    launch_here(how, [](CudaGroup& group) {
      const Error error = error_of([&] { static_cast<void>(group.allocate(DType::fp32, int64_t{50} << 20, 1024)); });
      want(error.kind() == ErrorKind::invalid_input, "{}", error.what());
      want(std::string(error.what()).find("has no room") != std::string::npos, "{}", error.what());
      exchange_words(group, group.allocate(DType::fp32, 1024, 1024), 0);
    });
    return std::string();
  });
}

TEST_P(CudaGroups, ASilentRankIsNamed) {
  in_child([&] {
    prepare();
    const Error error = error_of([&] {
      launch_here(options(10), [](CudaGroup& group) {
        group.barrier();
        if (group.rank() == 1) return std::this_thread::sleep_for(std::chrono::seconds(13));
        static_cast<void>(group.allocate(DType::fp32, 64, 64));
      });
    });
    want(error.kind() == ErrorKind::timeout, "{}", error.what());
    want(std::string(error.what()).find("rank 1") != std::string::npos, "{}", error.what());
    // The process and its devices survive.
    launch_here(options(), [](CudaGroup& group) { exchange_words(group, group.allocate(DType::fp32, 64, 64), 0); });
    return std::string();
  });
}

TEST_P(CudaGroups, KernelsLearnThatTheGroupIsBroken) {
  in_child([&] {
    prepare();
    const Error error = error_of([&] {
      launch_here(options(), [](CudaGroup& group) {
        auto* verdict = reinterpret_cast<volatile uint32_t*>(group.status_page() + cuda::kFreeStatus);
        group.barrier();
        if (group.rank() == 0) {
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
          fail(ErrorKind::wrong_result, "on purpose");
        }
        testing::start_spinning(&group.head(group.rank())->abort, 30, const_cast<uint32_t*>(verdict));
        const auto begin = std::chrono::steady_clock::now();
        cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        const auto passed = std::chrono::steady_clock::now() - begin;
        want(*verdict == 1, "the kernel's verdict is {} (2: it saw no abort word within 30 s)", *verdict);
        want(passed < std::chrono::seconds(10), "the kernel learned it after {} ms",
             std::chrono::duration_cast<std::chrono::milliseconds>(passed).count());
      });
    });
    want(std::string(error.what()) == "on purpose", "{}", error.what());
    launch_here(options(), [](CudaGroup& group) { exchange_words(group, group.allocate(DType::fp32, 64, 64), 0); });
    return std::string();
  });
}

/// Bytes that are allocated on this thread's current GPU.
int64_t used_here() {
  size_t free = 0;
  size_t total = 0;
  cuda::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<int64_t>(total - free);
}

/// The same of each GPU that this process sees.
std::vector<int64_t> used_everywhere() {
  std::vector<int64_t> used(cuda::num_gpus());
  for (int device = 0; device < std::ssize(used); ++device) {
    cuda::check(cudaSetDevice(device), "cudaSetDevice");
    used[device] = used_here();
  }
  return used;
}

void want_as_before(int64_t before, int64_t after, const std::string& when) {
  want(after <= before + 16 * kMiB, "{}: {} MiB of a GPU are used, before it were {}", when, after / kMiB,
       before / kMiB);
}

void use_memory(CudaGroup& group) { exchange_words(group, group.allocate(DType::fp32, 300 * kMiB / 4096, 1024), 0); }

TEST_P(CudaGroups, DeviceMemoryComesBack) {
  if (!mode_.threads) GTEST_SKIP() << "a process that polls at its GPU cannot fork; the next test does this";
  in_child([&] {
    prepare();
    // What CUDA itself takes, it takes the first time.
    launch_here(options(), use_memory);
    const std::vector<int64_t> before = used_everywhere();
    const auto want_all_as_before = [&](const std::string& when) {
      const std::vector<int64_t> after = used_everywhere();
      for (size_t device = 0; device < before.size(); ++device) want_as_before(before[device], after[device], when);
    };
    for (int round = 0; round < 3; ++round) launch_here(options(), use_memory);
    want_all_as_before("after three groups");
    const Error error = error_of([&] {
      launch_here(options(), [](CudaGroup& group) {
        use_memory(group);
        if (group.rank() == 1) fail(ErrorKind::wrong_result, "on purpose");
        group.barrier();
      });
    });
    want(std::string(error.what()) == "on purpose", "{}", error.what());
    want_all_as_before("after a failed group");
    return std::string();
  });
}

TEST_P(CudaGroups, ANameServesASecondGroup) {
  if (mode_.threads) GTEST_SKIP() << "only processes join by a name";
  in_child([&] {
    LaunchOptions how = options();
    how.backend = "host";
    how.arena_bytes = kMiB;
    const std::string job = fmt::format("cuda-group-test.{}", getpid());
    launch(mode_.num_ranks, how, [&](Group& host) {
      const JoinOptions join_options{host.team().rank, mode_.num_ranks, job, 1024 * kMiB, 60};
      for (int round = 0; round < 3; ++round) {
        const auto group = join("cuda", join_options);
        use_memory(dynamic_cast<CudaGroup&>(*group));
        group->barrier();
      }
      host.barrier();
      const int64_t before = used_here();
      host.barrier();
      {
        const auto group = join("cuda", join_options);
        use_memory(dynamic_cast<CudaGroup&>(*group));
      }
      host.barrier();
      want_as_before(before, used_here(), "after another group");
      host.barrier();
    });
    return std::string();
  });
}

class CudaProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = cuda::cuda_unavailable()) GTEST_SKIP() << *reason;
  }
};

TEST_F(CudaProcesses, MayNotShareAGpu) {
  in_child([] {
    testing::see_one_gpu();
    const Error error = error_of([] { launch(2, {.backend = "cuda"}, [](Group&) {}); });
    want(error.kind() == ErrorKind::unsupported, "{}", error.what());
    want(std::string(error.what()).find("ranks 0 and 1 are processes that share one GPU") != std::string::npos, "{}",
         error.what());
    return std::string();
  });
}

TEST_F(CudaProcesses, OneRankIsAGroup) {
  in_child([] {
    launch(1, {.backend = "cuda"}, [](Group& group) { use_memory(dynamic_cast<CudaGroup&>(group)); });
    return std::string();
  });
}

TEST_F(CudaProcesses, AreToldThatCudaWasStartedBeforeTheFork) {
  in_child([] {
    static_cast<void>(used_everywhere());
    const Error error = error_of([] { launch(1, {.backend = "cuda"}, [](Group&) {}); });
    want(error.kind() == ErrorKind::unsupported, "{}", error.what());
    want(std::string(error.what()).find("before this process was forked") != std::string::npos, "{}", error.what());
    return std::string();
  });
}

TEST_F(CudaProcesses, FactsOfThisMachine) {
  const std::string text = in_child([] {
    const cuda::CudaFacts facts = cuda::cuda_facts();
    want(!facts.gpus.empty() && !facts.driver.empty(), "no GPUs: {}", fmt::join(facts.missing, "; "));
    std::string lines = fmt::format("driver for CUDA {}, built with {}\n", facts.driver, facts.runtime);
    for (const cuda::Gpu& gpu : facts.gpus) {
      want(gpu.sms > 0 && gpu.memory_bytes > 0 && gpu.uuid.size() == 40, "{} {}", gpu.sms, gpu.uuid);
      want(gpu.peers.size() + 1 == facts.gpus.size(), "{} peers", gpu.peers.size());
      lines += fmt::format("{} {} {} SMs, {} MHz, {} W, NVLinks {}, PCIe {} x{}, virtual memory {}, descriptors {}\n",
                           gpu.name, gpu.pci, gpu.sms, gpu.sm_mhz, gpu.power_w, gpu.nvlinks, gpu.pcie_generation,
                           gpu.pcie_width, gpu.virtual_memory, gpu.descriptors);
    }
    return lines + fmt::format("missing: {}\n", fmt::join(facts.missing, "; "));
  });
  fmt::print("{}", text);
}

}  // namespace
}  // namespace tilewire
