// The contract of a call: on streams, in graphs, interleaved, with ranks out of step, the results equal those of
// separate
// calls, bit for bit. TILEWIRE_REPLAYS sets the number of graph replays (1000).
// NOTE: run the executable alone, or `ctest -L gpu`; every test starts CUDA in a child process of its own.
#include "cuda/calls.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <random>
#include <thread>
#include <utility>

#include "backends/cuda/vendor/cublaslt.hpp"
#include "backends/cuda/vendor/nccl.hpp"
#include "core/text.hpp"
#include "cuda/call_kernels.hpp"
#include "operators/verify.hpp"
#include "ranks/plans.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire::testing {
namespace {

int replays() {
  const char* text = std::getenv("TILEWIRE_REPLAYS");
  return text == nullptr ? 1000 : std::atoi(text);
}

class CudaCalls : public InPlaces {};
INSTANTIATE_TEST_SUITE_P(Gpu, CudaCalls, ::testing::ValuesIn(places()),
                         [](const auto& place) { return std::string(place.param.name); });

uint64_t new_seed() {
  const uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

/// One call, in step with the other ranks. Adds a hash of its outputs to *sum.
void call_once(Group& group, Caller& caller, uint64_t seed, uint64_t* sum) {
  caller.fill(seed);
  settle(caller.stream());
  group.barrier();
  caller.run_and_wait();
  caller.hash(sum);
  settle(caller.stream());
}

/// Hashes of separate calls.
std::vector<uint64_t> hashes_one_by_one(Group& group, Caller& caller, uint64_t seed, int count) {
  const Hashes hashes(group, count);
  for (int i = 0; i < count; ++i) {
    call_once(group, caller, seed + i, hashes.at(i));
    if (i == 0 || i == count - 1) caller.want_right(seed + i);
  }
  return hashes.values();
}

/// Six correct calls; tensor copies cannot take the tensors of the second and the fifth.
void call_at_strides_in_turn(Group& group, Op& op, uint64_t seed) {
  Caller caller(group, op);
  for (int i = 0; i < 6; ++i) {
    caller.fill(seed + i);
    settle(caller.stream());
    group.barrier();
    i % 3 == 1 ? caller.run_and_wait_at_strides() : caller.run_and_wait();
    caller.want_right(seed + i);
  }
}

// The two kinds of calls use the same lanes and counters, with different tables.
TEST_P(CudaCalls, AlignedAndUnalignedTensorsInTurn) {
  const uint64_t seed = new_seed();
  launch_ranks([&](Group& group) {
    for (const Sample& sample : samples()) {
      Op op = make_op(group, sample.problem, sample.config);
      call_at_strides_in_turn(group, op, seed);
    }
  });
}

// Tiles that load local rows in place; if tensors do not suit tensor copies, worker CTAs do so.
TEST_P(CudaCalls, RowsOfAInTwoPlaces) {
  if (place_.num_ranks == 1) GTEST_SKIP() << "one rank has all rows in one place";
  const uint64_t seed = new_seed();
  launch_ranks([&](Group& group) {
    const int ranks = group.team().num_ranks;
    const Problem problem{.op = "all_gather_gemm", .m = 128 * ranks, .n = 384 * ranks, .k = 512};
    Config config{.tile_m = 256, .tile_n = 192, .group_m = 8, .chunk_rows = 48, .chunk_cols = 128};
    config.tile_order = TileOrder::in_step;
    config.copy_workers = 3;
    Plan plan = make_plan(problem, group.team(), config);
    // Two ranks have a lane of their own for local rows; only copies of pools are omitted.
    for (Lane& lane : plan.lanes) {
      if (lane.name == "own") lane.engine = Engine::reduce;
    }
    Op op = make_op(group, plan);
    const auto is_split = [](const Task& task) { return task.kind == TaskKind::compute && task.reads.size() > 2; };
    const auto has_split = [&](const Lane& lane) { return std::ranges::any_of(lane.tasks, is_split); };
    want(std::ranges::any_of(op.plan().lanes, has_split), "no tile has rows of A in two places");
    call_at_strides_in_turn(group, op, seed);
  });
}

TEST_P(CudaCalls, ReplaysGiveTheBitsOfCallsOneByOne) {
  const uint64_t seed = new_seed();
  launch_ranks([&](Group& group) {
    for (const Sample& sample : samples()) {
      Op op = make_op(group, sample.problem, sample.config);
      Caller one_by_one(group, op);
      Caller replayed(group, op);
      const auto expected = hashes_one_by_one(group, one_by_one, seed, replays());
      const Hashes hashes(group, replays());
      replayed.make_graph();
      for (int i = 0; i < replays(); ++i) {
        replayed.fill(seed + i);
        keep_in_step(group, replayed.stream());
        replayed.replay();
        keep_in_step(group, replayed.stream());
        replayed.hash(hashes.at(i));
      }
      settle(replayed.stream());
      if (op.last_status()) throw Error(*op.last_status());
      want_same(hashes.values(), expected, to_string(sample.config));
    }
  });
}

/// Put ranks out of step: for some microseconds the host sleeps, or the device spins.
void stumble(std::mt19937_64& random, const Group& group, cudaStream_t stream) {
  const auto us = static_cast<int>(random() % 1500);
  const auto how = random() % 6;
  if (how == 0) usleep(static_cast<useconds_t>(us));
  if (how == 1) delay(us, stream);
  if (shares_gpu(group)) settle(stream);
}

/// Callers of several operators on streams of their own, called in a random order that all ranks share. Each call is
/// eager or a graph replay; no call is waited for.
void mix_calls(Group& group, std::vector<Caller>& callers, uint64_t seed, int steps, bool skewed) {
  std::mt19937_64 common(seed);
  std::mt19937_64 mine(seed + 1 + group.team().rank);
  std::vector<int> chosen;
  const Hashes hashes(group, steps);
  for (Caller& caller : callers) caller.make_graph();
  for (int step = 0; step < steps; ++step) {
    chosen.push_back(static_cast<int>(common() % callers.size()));
    Caller& caller = callers[chosen.back()];
    const auto how = common() % 8;
    caller.fill(seed + step);
    keep_in_step(group, caller.stream());
    if (skewed) stumble(mine, group, caller.stream());
    // A call without a stream waits for nothing of the caller's: its inputs must be there.
    if (how == 0) settle(caller.stream());
    how == 0 ? caller.run_and_wait() : how < 4 ? caller.run() : caller.replay();
    keep_in_step(group, caller.stream());
    caller.hash(hashes.at(step));
  }
  for (const Caller& caller : callers) settle(caller.stream());
  const Hashes again(group, steps);
  for (int step = 0; step < steps; ++step) {
    Caller& caller = callers[chosen[step]];
    call_once(group, caller, seed + step, again.at(step));
    if (step % 97 == 0) caller.want_right(seed + step);
  }
  want_same(hashes.values(), again.values(), fmt::format("seed {}", seed));
}

/// Two callers of each of these operators.
void mix_samples(Group& group, const std::vector<Sample>& some, uint64_t seed, int steps, bool skewed) {
  std::vector<Op> ops;
  std::vector<Caller> callers;
  for (const Sample& sample : some) ops.push_back(make_op(group, sample.problem, sample.config));
  for (Op& op : ops) {
    callers.emplace_back(group, op);
    callers.emplace_back(group, op);
  }
  mix_calls(group, callers, seed, steps, skewed);
}

TEST_P(CudaCalls, GraphsOfTwoOperatorsAndEagerCallsInterleave) {
  const uint64_t seed = new_seed();
  launch_ranks([&](Group& group) {
    const auto all = samples();
    mix_samples(group, {all[0], all[1]}, seed, replays(), false);
    mix_samples(group, {all[2], all[4], all.back()}, seed + 1, replays(), false);
  });
}

TEST_P(CudaCalls, RanksOutOfStep) {
  const uint64_t seed = new_seed();
  launch_ranks([&](Group& group) { mix_samples(group, samples(), seed, replays(), true); });
}

TEST_P(CudaCalls, CallsOfTheLibraryInGraphsAndOutOfStep) {
  if (place_.shared()) GTEST_SKIP() << "ranks that share a GPU do not call the library";
  if (const auto reason = cuda::missing_cublaslt()) GTEST_SKIP() << *reason;
  const uint64_t seed = new_seed();
  launch_ranks([&](Group& group) { mix_samples(group, library_samples(), seed, replays(), true); });
}

TEST_P(CudaCalls, CollectivesOfTheLibraryInGraphsAndOutOfStep) {
  if (place_.num_ranks == 1) GTEST_SKIP() << "one rank has nothing to exchange";
  if (place_.shared()) GTEST_SKIP() << "ranks that share a GPU do not call the library";
  if (const auto reason = cuda::missing_nccl()) GTEST_SKIP() << *reason;
  const uint64_t seed = new_seed();
  launch_ranks([&](Group& group) { mix_samples(group, collective_samples(), seed, replays(), true); });
}

/// No events are between calls; still, eager calls and replays of one stream run one after another.
TEST_P(CudaCalls, InTheCallersOrderCallsOfOneStreamFollowEachOther) {
  if (place_.shared()) GTEST_SKIP() << "ranks that share a GPU have one call under way each";
  const uint64_t seed = new_seed();
  const auto body = [&](Group& group) {
    const cuda::Stream stream = new_stream();
    std::vector<Op> ops;
    std::vector<Caller> callers;
    for (const Sample& sample : samples()) ops.push_back(make_op(group, sample.problem, sample.config));
    for (Op& op : ops) callers.emplace_back(group, op, stream.get());
    const cuda::Graph graph = capture(group, stream.get(), [&] {
      for (Caller& caller : callers) caller.run();
      for (Caller& caller : callers) caller.run();
    });
    const auto count = std::ssize(callers);
    const int64_t rounds = 5;
    const Hashes hashes(group, rounds * count);
    const Hashes again(group, rounds * count);
    for (int64_t i = 0; i < rounds; ++i) {
      for (int64_t c = 0; c < count; ++c) callers[c].fill(seed + i * count + c);
      settle(stream.get());
      cuda::launch_graph(graph, stream.get());
      for (Caller& caller : callers) caller.run();
      cuda::launch_graph(graph, stream.get());
      for (int64_t c = 0; c < count; ++c) callers[c].hash(hashes.at(i * count + c));
      settle(stream.get());
      for (int64_t c = 0; c < count; ++c) call_once(group, callers[c], seed + i * count + c, again.at(i * count + c));
    }
    want_same(hashes.values(), again.values(), "calls in the caller's order");
  };
  launch_ranks(body, CallOrder::stream);
}

TEST_P(CudaCalls, CallsThatOverlapAgainstThePromiseAreNamed) {
  if (place_.shared() || place_.num_ranks == 1) GTEST_SKIP() << "no call waits for another rank's";
  const auto body = [&](Group& group) {
    const Problem problem{.op = "all_reduce", .m = 64, .n = 512, .dtype = DType::fp32};
    const Config few{.tile_m = 16, .tile_n = 128, .tile_workers = 2, .reduce_workers = 2};
    Op first = make_op(group, problem, few);
    Op second = make_op(group, problem, few);
    Caller x(group, first);
    Caller y(group, second);
    x.fill(1);
    y.fill(2);
    settle(x.stream());
    settle(y.stream());
    group.barrier();
    // The others never call, so that the first call waits until the second one is noticed.
    std::string said;
    try {
      if (group.team().rank == 0) {
        x.run();
        y.run();
        settle(x.stream());
        settle(y.stream());
        x.run();
      }
      group.barrier();
    } catch (const Error& error) {
      said = error.what();
    }
    if (said.find("two calls overlapped") == std::string::npos)
      throw Error(ErrorKind::internal, "the overlap is not named: " + said);
  };
  launch_ranks(body, CallOrder::stream);
}

TEST_P(CudaCalls, OneGraphOfSeveralCallsOnTwoStreams) {
  if (place_.shared()) GTEST_SKIP() << "ranks that share a GPU have one call under way each";
  const uint64_t seed = new_seed();
  launch_ranks([&](Group& group) {
    const auto all = samples();
    Op first = make_op(group, all[0].problem, all[0].config);
    Op second = make_op(group, all[1].problem, all[1].config);
    Caller x(group, first);
    Caller y(group, second);
    Caller z(group, first, x.stream());
    const cuda::Event fork = cuda::new_event();
    const cuda::Event join = cuda::new_event();
    const cuda::Graph graph = capture(group, x.stream(), [&] {
      cuda::check(cudaEventRecord(fork.get(), x.stream()), "fork");
      cuda::check(cudaStreamWaitEvent(y.stream(), fork.get()), "fork");
      x.run();
      y.run();
      z.run();
      cuda::check(cudaEventRecord(join.get(), y.stream()), "join");
      cuda::check(cudaStreamWaitEvent(x.stream(), join.get()), "join");
    });
    const int rounds = replays() / 5;
    const Hashes hashes(group, 3 * rounds);
    for (int i = 0; i < rounds; ++i) {
      x.fill(seed + 3 * i);
      y.fill(seed + 3 * i + 1);
      settle(y.stream());
      z.fill(seed + 3 * i + 2);
      cuda::launch_graph(graph, x.stream());
      settle(x.stream());
      x.hash(hashes.at(3 * i));
      y.hash(hashes.at(3 * i + 1));
      z.hash(hashes.at(3 * i + 2));
    }
    settle(x.stream());
    settle(y.stream());
    const Hashes again(group, 3 * rounds);
    const std::vector<Caller*> callers{&x, &y, &z};
    for (int i = 0; i < 3 * rounds; ++i) {
      call_once(group, *callers[i % 3], seed + i, again.at(i));
    }
    want_same(hashes.values(), again.values(), "a graph of three calls");
  });
}

TEST_P(CudaCalls, TensorsAtNewAddressesTakeNoMemory) {
  const uint64_t seed = new_seed();
  launch_ranks([&](Group& group) {
    const Sample sample = samples()[1];
    Op op = make_op(group, sample.problem, sample.config);
    Caller replayed(group, op);
    constexpr int kCalls = 150;
    const auto expected = hashes_one_by_one(group, replayed, seed, kCalls);
    replayed.make_graph();
    std::vector<Caller> callers;
    for (int i = 0; i < 66; ++i) callers.emplace_back(group, op);
    const Hashes hashes(group, kCalls);
    const uint64_t before = used_by_pool();
    for (int i = 0; i < kCalls; ++i) {
      Caller& caller = i % 7 == 0 ? replayed : callers[i % std::ssize(callers)];
      caller.fill(seed + i);
      keep_in_step(group, caller.stream());
      i % 7 == 0 ? caller.replay() : caller.run();
      keep_in_step(group, caller.stream());
      caller.hash(hashes.at(i));
    }
    settle(replayed.stream());
    for (const Caller& caller : callers) settle(caller.stream());
    want_same(hashes.values(), expected, "calls with 67 sets of tensors");
    // NOTE: threads that have a GPU together see each other's memory.
    if (!place_.threads) want(used_by_pool() == before, "{} bytes of the pool, {} before", used_by_pool(), before);
  });
}

/// Tables are kept for 64 layouts of tensors: then the least recently used ones are removed, except those of a graph.
TEST_P(CudaCalls, ManyStridesInTurn) {
  const uint64_t seed = new_seed();
  launch_ranks([&](Group& group) {
    const Sample sample = samples()[1];
    Op op = make_op(group, sample.problem, sample.config);
    Caller dense(group, op);
    Caller strided(group, op);
    dense.make_graph();
    const auto check = [&](Caller& caller, uint64_t one, auto&& call) {
      caller.fill(one);
      keep_in_step(group, caller.stream());
      call();
      keep_in_step(group, caller.stream());
      caller.want_right(one);
    };
    for (int64_t i = 0; i < 140; ++i) {
      check(strided, seed + i, [&] { strided.run_and_wait_at_strides(8 * (70 - i % 70)); });
      if (i % 23 == 0) check(dense, seed + i, [&] { dense.replay(); });
    }
  });
}

TEST_P(CudaCalls, AnOperatorMayGoWhileItsLastCallsAreUnderWay) {
  const uint64_t seed = new_seed();
  launch_ranks([&](Group& group) {
    std::vector<uint64_t> got;
    std::vector<uint64_t> expected;
    // With few copies of engines, and with many.
    for (int round = 0; round < 20; ++round) {
      const Sample sample = round < 10 ? samples()[1] : samples().back();
      const Hashes hashes(group, 1);
      auto op = std::make_unique<Op>(make_op(group, sample.problem, sample.config));
      Caller caller(group, *op);
      if (round % 10 == 0) {
        const auto more = hashes_one_by_one(group, caller, seed + round, 10);
        expected.insert(expected.end(), more.begin(), more.end());
      }
      caller.fill(seed + round);
      keep_in_step(group, caller.stream());
      if (group.team().rank == 0) delay(20'000, caller.stream());
      caller.run();
      op.reset();
      caller.hash(hashes.at(0));
      settle(caller.stream());
      got.push_back(hashes.values()[0]);
    }
    want_same(got, expected, "operators that are gone");
  });
}

/// A burst leaves a correct result, and so do calls after it.
void time_bursts(Group& group, const Sample& sample, uint64_t seed) {
  const int num_ranks = group.team().num_ranks;
  const auto program = group.load(make_plan(sample.problem, group.team(), sample.config));
  // Replays of bursts are kept for one set of tensors at a time.
  const std::array<RankTensors, 2> sets{RankTensors(group, sample.problem), RankTensors(group, sample.problem)};
  const ReadRow read = random_inputs(sample.problem, num_ranks, seed);
  for (const RankTensors& set : sets) set.fill(read);
  const Expected expected(sample.problem, num_ranks, group.team().rank, read);
  const auto want_right = [&](const RankTensors& tensors, const char* after) {
    const Comparison comparison = expected.compare(tensors.results(), tolerance_of(sample.problem, sample.config));
    want(comparison.ok(), "{} after {}: {}", to_string(sample.config), after, comparison.text());
    tensors.poison();
    group.barrier();
  };
  const std::vector<std::pair<bool, size_t>> turns{{false, 0}, {true, 0}, {true, 1}, {true, 0}, {false, 1}};
  for (const auto& [graph, set] : turns) {
    const RankTensors& tensors = sets[set];
    tensors.poison();
    group.barrier();
    for (const bool cold : {false, true}) {
      const Burst burst{.calls = 5, .graph = graph, .cold = cold};
      const auto time = program->time_on_device(tensors.inputs(), tensors.outputs(), burst);
      want(time.has_value(), "no time by the device's clock");
      want(time->us > 0 && time->enqueue_us.size() == 5, "{} us, {} samples", time->us, time->enqueue_us.size());
      want_right(tensors, graph ? "replays" : "calls");
    }
    program->run(tensors.inputs(), tensors.outputs(), {});
    want_right(tensors, "a call after a burst");
  }
}

TEST_P(CudaCalls, BurstsOfCallsAndOfReplaysAreTimed) {
  if (place_.shared()) GTEST_SKIP() << "ranks that share a GPU have one call under way each";
  const uint64_t seed = new_seed();
  launch_ranks([&](Group& group) {
    auto all = samples();
    const auto more = cuda::missing_cublaslt() ? std::vector<Sample>{} : library_samples();
    all.insert(all.end(), more.begin(), more.end());
    for (const Sample& sample : all) time_bursts(group, sample, seed);
  });
}

TEST_P(CudaCalls, OnSharedGpusARunIsOverOnReturn) {
  if (!place_.shared()) GTEST_SKIP() << "calls are enqueued here";
  launch_ranks([&](Group& group) {
    const Sample sample = samples()[0];
    Op op = make_op(group, sample.problem, sample.config);
    Caller first(group, op);
    Caller second(group, op);
    for (Caller* caller : {&first, &second, &first}) {
      caller->fill(1);
      keep_in_step(group, caller->stream());
      caller->run();
      want(cudaStreamQuery(caller->stream()) == cudaSuccess, "the call is under way");
      caller->want_right(1);
    }
  });
}

}  // namespace
}  // namespace tilewire::testing
