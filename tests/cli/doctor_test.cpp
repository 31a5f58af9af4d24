// The findings of `tilewire doctor` on made-up machines, and its output on this one.
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/command.hpp"
#include "cli/symptoms.hpp"

namespace tilewire::cli {
namespace {

using testing::Outcome;
using testing::run_tilewire;

constexpr int64_t kGiB = int64_t{1} << 30;

/// Four H200 with NVSwitch, where nothing is missing.
MachineState good_machine() {
  MachineState machine;
  machine.cores = 64;
  machine.memory_bytes = 500 * kGiB;
  machine.shared_memory_bytes = 60 * kGiB;
  machine.gemm = "oneDNN 3.1";
  machine.python_package = "0.1.0";
  machine.cuda.driver = "13.0";
  machine.cuda.driver_version = "580.1";
  machine.cuda.runtime = "13.0";
  machine.cuda.nccl = "2.28.9";
  for (int i = 0; i < 4; ++i) {
    cuda::Gpu gpu{
        .name = "NVIDIA H200", .capability = "9.0", .virtual_memory = true, .descriptors = true, .nvlinks = 18};
    for (int other = 0; other < 4; ++other) {
      if (other != i) gpu.peers.push_back({other, true, true, 0});
    }
    machine.cuda.gpus.push_back(gpu);
  }
  return machine;
}

const Wanted kCuda{.backend = "cuda", .ranks = 4, .threads = false, .arena_bytes = 16 * kGiB};
const Wanted kHost{.backend = "host", .ranks = 4, .threads = false, .arena_bytes = 16 * kGiB};

/// "missing driver: ..." of each finding that is not ok.
std::vector<std::string> complaints(const MachineState& machine, const Wanted& wanted) {
  std::vector<std::string> texts;
  for (const Finding& finding : findings_of(machine, wanted)) {
    EXPECT_EQ(finding.advice.empty(), finding.health == Health::ok) << finding.what;
    if (finding.health == Health::ok) continue;
    texts.push_back((finding.health == Health::missing ? "missing " : "warning ") + finding.what + ": " + finding.seen +
                    " -> " + finding.advice);
  }
  return texts;
}

void expect_one(const MachineState& machine, const Wanted& wanted, const std::string& begin, const std::string& words) {
  const std::vector<std::string> texts = complaints(machine, wanted);
  ASSERT_EQ(texts.size(), 1U) << (texts.empty() ? "none" : texts[1]);
  EXPECT_TRUE(texts[0].starts_with(begin)) << texts[0];
  EXPECT_NE(texts[0].find(words), std::string::npos) << texts[0];
}

TEST(Doctor, AGoodMachineLacksNothing) {
  EXPECT_EQ(complaints(good_machine(), kCuda), std::vector<std::string>{});
  EXPECT_EQ(complaints(good_machine(), kHost), std::vector<std::string>{});
  EXPECT_GT(findings_of(good_machine(), kCuda).size(), findings_of(good_machine(), kHost).size());
}

TEST(Doctor, LimitsOfProcesses) {
  MachineState machine = good_machine();
  machine.most_descriptors = 20;
  expect_one(machine, kHost, "missing descriptors: 20 (ulimit -n), a rank needs 36", "ulimit -n 1024");
  machine = good_machine();
  machine.most_addresses = 64 * kGiB;
  expect_one(machine, kHost, "missing address space: 64 GiB (ulimit -v), arenas of 4 ranks take 64 GiB", "--arena-gib");
  machine.most_addresses = 65 * kGiB;
  EXPECT_EQ(complaints(machine, kHost), std::vector<std::string>{});
  machine = good_machine();
  machine.most_file_bytes = kGiB;
  expect_one(machine, kCuda, "missing file size: 1 GiB (ulimit -f)", "ulimit -f unlimited");
}

TEST(Doctor, SmallMachines) {
  MachineState machine = good_machine();
  machine.cores = 2;
  expect_one(machine, kHost, "warning cores: 2 for 4 ranks", "--ranks 2");
  EXPECT_EQ(complaints(machine, kCuda), std::vector<std::string>{});
  machine = good_machine();
  machine.memory_bytes = kGiB;
  machine.memory_of_cgroup = true;
  expect_one(machine, kHost, "warning memory: 1 GiB (the cgroup's limit)", "4 ranks want 2 GiB");
  machine = good_machine();
  machine.gemm = "plain loops";
  expect_one(machine, kHost, "warning GEMM on CPUs: plain loops", "libdnnl-dev");
  machine = good_machine();
  machine.python_package.clear();
  expect_one(machine, kHost, "warning Python package", "pip install .");
}

TEST(Doctor, Drivers) {
  MachineState machine = good_machine();
  machine.cuda = {};
  machine.cuda.missing = {"this build has no CUDA"};
  expect_one(machine, kCuda, "missing driver: this build has no CUDA", "-DTILEWIRE_CUDA=ON");
  machine.cuda.runtime = "13.0";
  machine.cuda.missing = {"no NVIDIA driver (libcuda.so.1 cannot be loaded)"};
  expect_one(machine, kCuda, "missing driver: no NVIDIA driver", "--gpus all");
  machine.cuda.driver = "13.0";
  machine.cuda.missing = {"cudaGetDeviceCount: cudaErrorSystemNotReady (system not yet initialized)"};
  expect_one(machine, kCuda, "missing driver: cudaGetDeviceCount", "nvidia-fabricmanager");
  machine = good_machine();
  machine.cuda.driver = "12.8";
  expect_one(machine, kCuda, "missing driver: 580.1 for CUDA 12.8, built with 13.0", "update the driver");
  machine.cuda.driver = "13.1";
  EXPECT_EQ(complaints(machine, kCuda), std::vector<std::string>{});
}

TEST(Doctor, GpusAndTheirLinks) {
  MachineState machine = good_machine();
  machine.cuda.gpus.pop_back();
  expect_one(machine, kCuda, "missing GPUs: 3 for 4 ranks", "--threads");
  Wanted threads = kCuda;
  threads.threads = true;
  expect_one(machine, threads, "warning GPUs: 3 for 4 ranks", "ranks share GPUs");
  machine = good_machine();
  machine.cuda.gpus[2].capability = "8.0";
  expect_one(machine, kCuda, "missing GPU kind: GPU 2 is NVIDIA H200, capability 8.0", "capability 9.0");
  machine = good_machine();
  machine.cuda.gpus[1].descriptors = false;
  expect_one(machine, kCuda, "missing GPU kind: GPU 1 cannot share memory between processes", "--threads");
  EXPECT_EQ(complaints(machine, threads), std::vector<std::string>{});
  machine = good_machine();
  machine.cuda.gpus[1].peers[2].load_store = false;
  expect_one(machine, kCuda, "missing peer access: GPU 1 cannot address the memory of GPU 3", "nvidia-smi topo -m");
  Wanted two = kCuda;
  two.ranks = 2;
  EXPECT_EQ(complaints(machine, two), std::vector<std::string>{}) << "ranks get GPUs 0 and 1";
  machine = good_machine();
  machine.cuda.gpus[0].peers[0].atomics = false;
  expect_one(machine, kCuda, "missing peer access: GPU 0 cannot do atomic operations in", "NVLink");
  machine = good_machine();
  machine.cuda.gpus[3].nvlinks = 16;
  expect_one(machine, kCuda, "warning links: 16 to 18 NVLinks a GPU", "nvidia-smi nvlink");
  machine.cuda.gpus[3].nvlinks = -1;
  expect_one(machine, kCuda, "warning links: the number of NVLinks is unknown", "libnvidia-ml.so.1");
}

TEST(Doctor, WhatSurroundsThem) {
  MachineState machine = good_machine();
  machine.device_connections = 1;
  expect_one(machine, kCuda, "warning CUDA_DEVICE_MAX_CONNECTIONS: 1", "unset it");
  machine = good_machine();
  machine.shared_memory_bytes = 64 << 20;
  expect_one(machine, kCuda, "warning /dev/shm: 64 MiB free", "--shm-size");
  machine = good_machine();
  machine.cuda.missing = {"collective = library: no NCCL (libnccl.so.2)"};
  expect_one(machine, kCuda, "warning NCCL: collective = library: no NCCL", "nvidia-nccl");
  machine.cuda.missing = {"compute = library: no cuBLASLt (libcublasLt.so.13)"};
  expect_one(machine, kCuda, "warning cuBLASLt", "nvidia-cublas");
}

TEST(Doctor, ThisMachineRunsTheHostBackend) {
  const Outcome outcome = run_tilewire("doctor --ranks 2");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("a product on 2 ranks, right"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.err, "");
}

TEST(Doctor, SaysWhatIsMissing) {
  const Outcome outcome = run_tilewire("doctor --ranks 3000 --arena-gib 0.001");
  EXPECT_EQ(outcome.code, 2) << outcome.out;
  EXPECT_NE(outcome.out.find("missing  trial"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.err.find("host would not run here"), std::string::npos) << outcome.err;
  const Outcome none = run_tilewire("doctor --ranks 0");
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("--ranks 0: want 1 or more"), std::string::npos) << none.err;
  const Outcome json = run_tilewire("doctor --ranks 1 --json -");
  EXPECT_EQ(json.code, 0);
  EXPECT_NE(json.out.find("\"runs\": true"), std::string::npos) << json.out;
}

}  // namespace
}  // namespace tilewire::cli
