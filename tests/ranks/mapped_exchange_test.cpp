// Outputs of GEMMs that T3's maps gather and exchange: proofs, results on CPU ranks, traffic, and refusals.
// Built as the target `ranks`.
#include "schedules/mapped_exchange.hpp"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "operators/gemm.hpp"
#include "ranks/plans.hpp"
#include "tilewire/check.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/print.hpp"
#include "tilewire/sim/sim.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire {
namespace {

struct ExchangeCase {
  Collective collective;
  OutputMap (*map)(int num_ranks);
};
constexpr std::array kExchanges{ExchangeCase{Collective::all_gather, ring_all_gather},
                                ExchangeCase{Collective::all_gather, direct_all_gather},
                                ExchangeCase{Collective::all_to_all, all_to_all}};

Plan plan_of(const ExchangeCase& exchange, const Problem& problem, int ranks, const Config& config) {
  return make_exchange_plan(problem, {.num_ranks = ranks}, config, exchange.collective, exchange.map(ranks));
}

/// The first column that `rank` gets.
int64_t first_col(const Plan& plan, int rank) {
  return plan.op == "all_gather" ? 0 : shard_of(note_of(plan).problem.n, plan.team.num_ranks, rank).begin;
}

Specification wanted_of(const Plan& plan) {
  std::vector<Meaning> meanings;
  const Problem problem = note_of(plan).problem;
  for (int rank = 0; rank < plan.team.num_ranks; ++rank) {
    const int64_t row = shard_of(problem.m, plan.team.num_ranks, rank).begin;
    meanings.push_back({.buffer = 0, .rank = rank, .role = Role::a, .row = row});
    meanings.push_back({.buffer = 1, .rank = rank, .role = Role::b});
    meanings.push_back(
        {.buffer = 2, .rank = rank, .role = Role::partial, .col = first_col(plan, rank), .terms = {0, problem.k}});
  }
  return {.meanings = std::move(meanings)};
}

/// A random matrix, the same on every rank.
std::vector<float> random_matrix(int64_t rows, int64_t cols, unsigned seed) {
  std::minstd_rand random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(rows * cols));
  for (float& value : values) value = uniform(random);
  return values;
}

void expect_right(const Plan& plan) {
  const Problem problem = note_of(plan).problem;
  const int ranks = plan.team.num_ranks;
  launch(ranks, testing::small_launch(true), [&](Group& group) {
    const int rank = group.team().rank;
    const Range rows = shard_of(problem.m, ranks, rank);
    const Shape shape = shape_on(plan.buffers[2], rank);
    const Tensor room = group.allocate(DType::fp32, plan.buffers[2].rows, plan.buffers[2].cols);
    const Tensor output = make_tensor(room.data, DType::fp32, shape.rows, shape.cols);
    const auto program = group.load(plan);
    for (unsigned call = 0; call < 2; ++call) {
      std::vector<float> a = random_matrix(problem.m, problem.k, 2 * call + 1);
      std::vector<float> b = random_matrix(problem.n, problem.k, 2 * call + 2);
      const std::array inputs{make_tensor(a.data() + rows.begin * problem.k, DType::fp32, rows.size(), problem.k),
                              make_tensor(b.data(), DType::fp32, problem.n, problem.k)};
      program->run(inputs, {&output, 1}, {});
      DoubleMatrix product(problem.m, problem.n);
      add_product(make_tensor(a.data(), DType::fp32, problem.m, problem.k), by_rows_of_k(problem, inputs[1]), product);
      for (int64_t row = 0; row < shape.rows; ++row) {
        for (int64_t col = 0; col < shape.cols; ++col) {
          const double wanted = product.at(row, first_col(plan, rank) + col);
          testing::want(std::abs(element(output, row, col) - wanted) < 1e-4,
                        "{} on rank {} of {}: {}, {} is {}, not {}", to_string(problem), rank, ranks, row, col,
                        element(output, row, col), wanted);
        }
      }
    }
  });
}

TEST(MappedExchange, IsProvenAndRight) {
  constexpr std::array<std::array<int64_t, 3>, 5> kShapes{{{37, 29, 13}, {3, 40, 5}, {1, 1, 1}, {16, 2, 0}, {0, 8, 8}}};
  for (const ExchangeCase& exchange : kExchanges) {
    for (const int ranks : {1, 2, 3, 4, 5}) {
      for (const auto& [m, n, k] : kShapes) {
        const Problem problem{.op = to_string(exchange.collective), .m = m, .n = n, .k = k, .dtype = DType::fp32};
        for (const int64_t chunk_rows : {0, 5}) {
          const Config config{.tile_m = 8, .tile_n = 8, .chunk_rows = chunk_rows, .copy_lanes = chunk_rows > 0 ? 2 : 1};
          const Plan plan = plan_of(exchange, problem, ranks, config);
          SCOPED_TRACE(to_string(problem) + " on " + std::to_string(ranks));
          const CheckResult proof = check(plan, wanted_of(plan));
          ASSERT_TRUE(proof.ok()) << proof.violations[0].text;
          expect_right(plan);
        }
      }
    }
  }
}

TEST(MappedExchange, OnlyARingPassesOn) {
  const Problem problem{.op = "gemm", .m = 32, .n = 16, .k = 8, .dtype = DType::fp32};
  const Config config{.tile_m = 8, .tile_n = 8};
  constexpr int64_t kBytes = 32 * 16 * 4;
  for (const ExchangeCase& exchange : kExchanges) {
    const Plan plan = plan_of(exchange, problem, 4, config);
    const CheckResult proof = check(plan, wanted_of(plan));
    int64_t copies = 0;
    for (const Lane& lane : plan.lanes) copies += lane.engine == Engine::copy ? std::ssize(lane.tasks) : 0;
    // 4 ranks pass on 2 chunks of 2 tiles.
    EXPECT_EQ(copies, exchange.map == ring_all_gather ? 16 : 0);
    EXPECT_EQ(proof.total_bytes, exchange.collective == Collective::all_gather ? 3 * kBytes : 3 * kBytes / 4);
  }
}

TEST(MappedExchange, WhatIsExchangedIsNotWrittenToTheOwnMemory) {
  Machine machine = load_machine("mi210x4");
  const Problem problem{.op = "gemm", .m = 4096, .n = 4096, .k = 1024, .dtype = DType::fp16};
  const Config config{.tile_m = 128, .tile_n = 128};
  for (const ExchangeCase& exchange : kExchanges) {
    const Simulation simulation = simulate(plan_of(exchange, problem, 4, config), machine);
    const int64_t shard = 4096 * 1024 * 2;
    const bool gathers = exchange.collective == Collective::all_gather;
    for (const MemoryLoad& memory : simulation.memory) EXPECT_EQ(memory.written_bytes, (gathers ? 4 : 1) * shard);
  }
}

TEST(MappedExchange, RefusesWhatItWouldNotDo) {
  const Problem problem{.op = "gemm", .m = 8, .n = 8, .k = 8, .dtype = DType::fp32};
  const auto refusal = [&](const OutputMap& map, Collective collective, const Config& config = {}) {
    return std::string(testing::error_of([&] {
                         static_cast<void>(make_exchange_plan(problem, {.num_ranks = 2}, config, collective, map));
                       }).what());
  };
  EXPECT_EQ(refusal(ring_reduce_scatter(2), Collective::all_gather),
            "all_gather sums nothing: rank 0 maps chunk 1 with accumulate");
  EXPECT_EQ(refusal(ring_all_gather(2), Collective::all_reduce),
            "exchange of an output by all_reduce: want all_gather or all_to_all");
  EXPECT_EQ(refusal(all_to_all(2), Collective::all_to_all, {.split_k = 2}),
            "exchange of an output: knob split_k = 2 has no meaning for gemm (tilewire info --knobs)");
  EXPECT_EQ(refusal(ring_all_gather(3), Collective::all_gather),
            "a map of 3 ranks and 3 chunks: all_gather on 2 ranks has 2 chunks");
  EXPECT_EQ(refusal(OutputMap(2), Collective::all_gather), "all_gather: rank 0 makes chunk 1, whose rows rank 1 has");
  OutputMap astray = all_to_all(2);
  astray.dma_map(0, 0, 1, 1, WriteMode::store);
  EXPECT_EQ(refusal(astray, Collective::all_to_all), "all_to_all: chunk 0 comes to rank 1, but is for rank 0");
  OutputMap twice = direct_all_gather(3);
  twice.dma_map(1, 1, 2, 1, WriteMode::store);
  EXPECT_EQ(std::string(testing::error_of([&] { twice.validate(); }).what()),
            "chunk 1 is stored on rank 2 by 2 ranks: want at most 1");
}

}  // namespace
}  // namespace tilewire
