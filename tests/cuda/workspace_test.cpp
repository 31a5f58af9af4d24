// Operators of a group use the same workspace one after another; it grows behind the part that calls and graphs use.
// NOTE: part of the executable cuda_calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>

#include "core/text.hpp"
#include "cuda/call_kernels.hpp"
#include "cuda/calls.hpp"
#include "ranks/plans.hpp"

namespace tilewire::testing {
namespace {

class CudaWorkspace : public InPlaces {};
INSTANTIATE_TEST_SUITE_P(Gpu, CudaWorkspace, ::testing::ValuesIn(places()),
                         [](const auto& place) { return std::string(place.param.name); });

/// An operator, its tensors, and the expected hash for its inputs.
struct Member {
  std::unique_ptr<Op> op;
  std::unique_ptr<Caller> caller;
  uint64_t seed = 0;
  uint64_t expected = 0;
};

/// Number `index`: a sample with up to 48 times its rows, a little more each time.
Member new_member(Group& group, int index, uint64_t seed, cudaStream_t stream) {
  const std::vector<Sample> all = samples();
  Sample sample = all[index % all.size()];
  sample.problem.m += sample.problem.m / 2 * (index / 5);
  Member member;
  member.op = std::make_unique<Op>(make_op(group, sample.problem, sample.config));
  member.caller = std::make_unique<Caller>(group, *member.op, stream);
  member.seed = seed + static_cast<uint64_t>(index);
  const Hashes once(group, 1);
  member.caller->fill(member.seed);
  settle(stream);
  group.barrier();
  member.caller->run_and_wait();
  member.caller->want_right(member.seed);
  member.caller->hash(once.at(0));
  settle(stream);
  member.expected = once.values()[0];
  return member;
}

TEST_P(CudaWorkspace, FiftyOperatorsInRandomOrderEagerAndInGraphs) {
  if (place_.shared()) GTEST_SKIP() << "ranks that share a GPU have one call under way each";
  const uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  launch_ranks([&](Group& group) {
    constexpr int kMembers = 50;
    constexpr int kRounds = 200;
    constexpr int kOfGraph = 4;
    const cuda::Stream stream = new_stream();
    std::mt19937_64 random(seed);  // the same on all ranks
    std::vector<Member> members;
    std::vector<cuda::Graph> graphs;
    std::vector<std::vector<int>> in_graph;
    while (std::ssize(members) < kMembers) {
      members.push_back(new_member(group, static_cast<int>(members.size()), seed, stream.get()));
      if (members.size() % 16 != 10) continue;
      auto& some = in_graph.emplace_back();
      for (int i = 0; i < kOfGraph; ++i) some.push_back(static_cast<int>(random() % members.size()));
      graphs.push_back(capture(group, stream.get(), [&] {
        for (const int member : some) members[member].caller->run_on(stream.get());
      }));
    }
    want(graphs.size() == 3, "{} graphs", graphs.size());
    const Hashes hashes(group, kRounds * kOfGraph);
    std::vector<uint64_t> expected(kRounds * kOfGraph, 0);
    for (int round = 0; round < kRounds; ++round) {
      const bool replays = random() % 3 == 0;
      const size_t graph = random() % graphs.size();
      const std::vector<int> some = replays ? in_graph[graph] : std::vector<int>{static_cast<int>(random() % kMembers)};
      // NOTE: drawn by all ranks, so that they agree on what comes next.
      const auto late = static_cast<int>(random() % static_cast<uint64_t>(group.team().num_ranks));
      const auto late_us = static_cast<double>(random() % 300);
      for (const int member : some) members[member].caller->fill(members[member].seed);
      // NOTE: ranks that are late show who does not wait for them.
      if (late == group.team().rank) delay(late_us, stream.get());
      // The same calls, of some ranks as replays and of others one by one.
      if (replays && (round + group.team().rank) % 2 == 0) {
        cuda::launch_graph(graphs[graph], stream.get());
      } else {
        for (const int member : some) members[member].caller->run();
      }
      for (size_t i = 0; i < some.size(); ++i) {
        const size_t at = static_cast<size_t>(round) * kOfGraph + i;
        members[some[i]].caller->hash(hashes.at(static_cast<int64_t>(at)));
        expected[at] = members[some[i]].expected;
      }
    }
    settle(stream.get());
    const std::vector<uint64_t> got = hashes.values();
    for (size_t i = 0; i < expected.size(); ++i)
      want(got[i] == expected[i], "round {}, call {}: hash {:x}, want {:x}", i / kOfGraph, i % kOfGraph, got[i],
           expected[i]);
  });
}

TEST_P(CudaWorkspace, AThousandOperatorsTakeLittleMoreThanTheLargest) {
  if (place_.num_ranks != 2 || place_.one_gpu || place_.threads) GTEST_SKIP() << "for two ranks with a GPU each";
  launch_ranks([&](Group& group) {
    constexpr int64_t kSize = 8192;
    constexpr int64_t kMost = 1000;
    const int64_t half = kSize / 2;
    const auto a = group.new_memory(kMost * half * 2);
    const auto b = group.new_memory(kSize * half * 2);
    const auto c = group.new_memory(kMost / 2 * kSize * 2);
    std::vector<Op> ops;
    const auto add = [&](int64_t m) {
      const Problem problem{.op = "gemm_reduce_scatter", .m = m, .n = kSize, .k = kSize, .dtype = DType::bf16};
      Op& op = ops.emplace_back(make_op(group, problem, Config{}));
      const int64_t rows = group.team().rank == 0 ? (m + 1) / 2 : m / 2;
      op.run_and_wait(
          std::vector{make_tensor(a.get(), DType::bf16, m, half), make_tensor(b.get(), DType::bf16, kSize, half)},
          std::vector{make_tensor(c.get(), DType::bf16, rows, kSize)});
    };
    const auto free_bytes = [] {
      size_t free = 0;
      size_t total = 0;
      cuda::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
      return static_cast<int64_t>(free);
    };
    add(kMost);
    const int64_t before = free_bytes();
    for (int64_t m = 1; m < kMost; ++m) add(m);
    const int64_t taken = before - free_bytes();
    std::printf("rank %d: 999 operators more take %.1f MiB\n", group.team().rank,
                static_cast<double>(taken) / (1 << 20));
    want(taken < int64_t{64} << 20, "{} bytes for 999 operators more, want less than 64 MiB", taken);
  });
}

}  // namespace
}  // namespace tilewire::testing
