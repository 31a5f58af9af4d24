// Every operator x every accepted combination of knobs, against the reference: ranks are threads that share GPUs.
// NOTE: run the executable alone, or `ctest -L gpu`: CUDA starts in this process.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "backends/cuda/tables/stream_lanes.hpp"
#include "backends/cuda/vendor/nccl.hpp"
#include "core/convert.hpp"
#include "lower/tensor_cores.hpp"
#include "on_gpus.hpp"
#include "operators/plan_changes.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire::testing {
namespace {

TEST_P(OnGpus, KnobsOnWorkers) {
  const Problem problem{.op = op(), .m = 37, .n = 29, .k = 23, .dtype = DType::fp32, .reduction = Reduction::any};
  expect(problem, {.tile_m = 8, .tile_n = 8, .chunk_rows = 5}, 100, 11);
}

TEST_P(OnGpus, KnobsOnTensorCores) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    const Problem problem{.op = op(), .m = 300, .n = 264, .k = 200, .dtype = dtype, .reduction = Reduction::any};
    expect(problem, {.tile_m = 128, .tile_n = 128, .chunk_rows = 100}, 40, 21);
  }
}

TEST_P(OnGpus, NormsOfTheOutputsRows) {
  if (!leaves_summed_rows(structure())) GTEST_SKIP() << "takes no norm";
  uint64_t seed = 61;
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      for (const int n : {264, 29}) {
        Problem problem{.op = op(), .m = 300, .n = n, .k = 200, .dtype = dtype, .reduction = Reduction::any};
        problem.norm = Norm{kind, 1e-5};
        problem.epilogue = {{EpilogueKind::residual}};
        expect(problem, {.tile_m = 128, .tile_n = 128, .chunk_rows = 100}, 20, ++seed);
      }
    }
  }
  for (const DType out : {DType::fp8_e4m3, DType::int8}) {
    Problem problem{.op = op(), .m = 300, .n = out == DType::int8 ? 264 : 29, .k = 200, .dtype = DType::bf16};
    problem.reduction = Reduction::any;
    problem.norm = Norm{NormKind::rms, 1e-5, out};
    expect(problem, {.tile_m = 128, .tile_n = 128, .chunk_rows = 100}, 10, ++seed);
  }
}

TEST_P(OnGpus, RepeatableSumsHaveTheSameBits) {
  for (const auto& [m, n] : {std::pair<int, int>{128, 256}, {256, 128}, {64, 128}, {256, 192}}) {
    const Problem problem{.op = op(), .m = 330, .n = 320, .k = 192, .dtype = DType::bf16};
    expect(problem, {.tile_m = m, .tile_n = n, .chunk_rows = 64}, 16, 31, 3);
  }
}

/// CTAs with several tiles: partials arrive during the next tile, and a gather's waits are deferred.
TEST_P(OnGpus, ManyTilesOfFewWorkers) {
  const Problem problem{.op = op(), .m = 128 * ranks(), .n = 264, .k = 256 * ranks(), .dtype = DType::bf16};
  for (const Config& base :
       {Config{.tile_n = 128, .tile_workers = 2}, Config{.cluster_m = 2, .group_m = 4, .tile_workers = 4},
        Config{.cluster_n = 2, .group_m = 2, .tile_workers = 2},
        Config{.cluster_m = 2, .group_m = 4, .tile_workers = 1}}) {
    expect(problem, base, 2, 41, 1);
  }
  // Columns of A that arrive one after another, and owners whose tiles are grouped.
  if (!structure().multiplies || (gathers() && structure().by_columns)) return;
  std::vector<Config> configs;
  for (const int owners : {1, 2}) {
    Config& config =
        configs.emplace_back(Config{.cluster_m = 2, .group_m = 4, .tile_workers = 4, .group_owners = owners});
    if (op() == std::string("all_gather_gemm")) config.chunk_cols = 200;
  }
  if (op() == std::string("all_gather_gemm")) {
    for (const Transport transport : {Transport::store, Transport::copy_engine}) {
      configs.push_back({.cluster_m = 2,
                         .group_m = 8,
                         .tile_workers = 4,
                         .chunk_cols = 136,
                         .transport = transport,
                         .tile_order = TileOrder::in_step});
      configs.push_back(configs.back());
      configs.back().group_owners = 2;
      configs.push_back({.tile_workers = 4, .chunk_cols = 136, .transport = transport});
    }
    // Few workers, which push a chunk to all peers at once.
    for (const int64_t tile_m : {128, 256}) {
      Config few{.tile_m = tile_m, .tile_n = 192, .group_m = 8, .tile_workers = 4, .chunk_rows = 24};
      few.chunk_cols = 136;
      few.copy_workers = 2;
      few.tile_order = TileOrder::in_step;
      configs.push_back(few);
      few.group_owners = 2;
      configs.push_back(few);
    }
  }
  expect_right(problem, ranks(), taken(problem, configs),
               {.num_calls = 2, .backend = "cuda", .timeout_s = 10, .seed = 42});
}

TEST_P(OnGpus, AwkwardShapes) {
  constexpr std::array<std::array<int64_t, 3>, 9> kShapes{{{0, 8, 8},
                                                           {8, 8, 0},
                                                           {1, 1, 1},
                                                           {3, 1, 40},
                                                           {7, 17, 5},
                                                           {130, 264, 72},
                                                           {2, 136, 64},
                                                           {257, 8, 200},
                                                           {65, 1032, 8}}};
  constexpr std::array kDTypes{DType::bf16, DType::fp16, DType::fp32};
  uint64_t seed = 100;
  for (const auto& [m, n, k] : kShapes) {
    // Of each shape two dtypes, each with another layout; in all every pair of them.
    for (const BLayout layout : {BLayout::nk, BLayout::kn}) {
      Problem problem{.op = op(), .m = m, .n = n, .k = k, .b_layout = layout, .reduction = Reduction::any};
      problem.dtype = kDTypes[++seed % kDTypes.size()];
      expect(problem, {.tile_m = 128, .tile_n = 128, .chunk_rows = 50}, 6, seed, 1);
    }
  }
}

TEST_P(OnGpus, LayoutsBiasGatheredAndArena) {
  uint64_t seed = 200;
  for (const BLayout layout : {BLayout::nk, BLayout::kn}) {
    for (const bool arena : {false, true}) {
      Problem problem{.op = op(), .m = 300, .n = 264, .k = 136, .dtype = DType::bf16, .b_layout = layout};
      problem.out_dtype = arena ? DType::fp32 : DType::bf16;
      if (structure().multiplies) problem.epilogue = {{EpilogueKind::bias}};
      problem.gathered_output = gathers();
      if (gathers() && layout == BLayout::nk) problem.more_n = {136, 40};
      if (arena) {
        for (const Buffer& buffer : find_operator(op()).buffers(problem, ranks())) problem.arena.push_back(buffer.name);
      }
      for (const int rows : {64, 104}) expect(problem, {.tile_m = rows, .tile_n = 128, .chunk_rows = 40}, 12, ++seed);
    }
  }
}

/// Tiles that tensor cores, or the kernel of most tiles, do not take run beside the others in a kernel of their own.
TEST_P(OnGpus, SomeTilesWithoutTensorCores) {
  if (!structure().multiplies) GTEST_SKIP() << "there are no tiles";
  uint64_t seed = 270;
  const Problem problem{.op = op(), .m = 520, .n = 520, .k = 128 * ranks(), .dtype = DType::bf16};
  for (const int64_t rows : {24, 64}) {
    const auto change = [rows](Plan& plan) {
      for (Lane& lane : plan.lanes) {
        int tile = 0;
        for (Task& task : lane.tasks) {
          if (task.kind == TaskKind::compute && tile++ % 3 == 1) task.gemm.tile_m = rows;
        }
      }
    };
    std::vector<Config> configs{{.tile_n = 128}, {.tile_n = 128, .tile_workers = 3}};
    if (!gathers()) configs[1].transport = Transport::tma;
    for (const Config& config : configs) {
      Plan plan = make_plan(problem, {.num_ranks = ranks()}, config);
      change(plan);
      EXPECT_GT(slow_share(lower(plan, gpu_target("h200", ranks(), 132)).plan), 0);
    }
    expect_right(problem, ranks(), configs,
                 {.num_calls = 3, .backend = "cuda", .timeout_s = 10, .seed = ++seed, .change = change});
  }
}

/// Tiles on tensor cores beside library calls on the same rank, which share its SMs.
TEST_P(OnGpus, TilesBesideCallsOfTheLibrary) {
  if (op() != std::string("all_gather_gemm")) GTEST_SKIP() << "only gathers call the library for a part of the rows";
  if (ranks() == 1) GTEST_SKIP() << "one rank makes one call";
  if (shares_gpus()) GTEST_SKIP() << "too few GPUs";
  if (const auto reason = cuda::missing_cublaslt()) GTEST_SKIP() << *reason;
  uint64_t seed = 1300;
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{2048, 1024}, {1900, 776}}) {
    Problem problem{.op = op(), .m = m, .n = n * ranks(), .k = 512, .dtype = DType::bf16};
    problem.epilogue = {{EpilogueKind::bias}};
    std::vector<Config> configs;
    for (const int64_t rows : {128, 256}) {
      configs.push_back({.chunk_rows = rows, .transport = Transport::copy_engine, .compute = Provider::library});
      configs.push_back(configs.back());
      configs.back().transport = Transport::store;
    }
    for (const Config& config : configs) {
      Plan plan = make_plan(problem, {.num_ranks = ranks()}, config);
      make_tiles_of_calls(plan);
      EXPECT_EQ(slow_tiles(lower(plan, gpu_target("h200", ranks(), 132)).plan), std::nullopt);
    }
    expect_right(problem, ranks(), configs,
                 {.num_calls = 4, .backend = "cuda", .timeout_s = 10, .seed = ++seed, .change = make_tiles_of_calls});
  }
}

/// Every epilogue step, on tensor cores and on worker CTAs, also in tiles that complete sums.
TEST_P(OnGpus, EveryStepOfAnEpilogue) {
  if (!structure().multiplies) GTEST_SKIP() << "takes no epilogue";
  uint64_t seed = 250;
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
    for (const bool wide : {false, true}) {
      Problem problem{.op = op(), .m = 300, .n = 264, .k = 72 * ranks(), .dtype = dtype};
      if (wide) problem.out_dtype = DType::fp32;
      problem.epilogue = {{EpilogueKind::bias}, {EpilogueKind::gelu}, {EpilogueKind::scale, 0.5}};
      problem.epilogue.insert(problem.epilogue.end(), {{EpilogueKind::residual}, {EpilogueKind::relu}});
      for (const int rows : {64, 104, 128}) expect(problem, {.tile_m = rows, .tile_n = 128}, 8, ++seed);
      // Rows of the residual, and first columns, at odd elements.
      Problem odd = problem;
      odd.m = 302, odd.n = 106;
      expect(odd, {.tile_m = 64, .tile_n = 128}, 6, ++seed);
      std::vector<Config> sums{{.tile_n = 128, .transport = Transport::tma}, {.transport = Transport::tma}};
      sums[1].cluster_m = 2;
      std::erase_if(sums, [&](const Config& config) {
        return find_schedule(config.schedule).refuses(problem, {.num_ranks = ranks()}, config).has_value();
      });
      if (sums.empty()) continue;
      expect_right(problem, ranks(), sums, {.num_calls = 2, .backend = "cuda", .timeout_s = 10, .seed = ++seed});
    }
  }
}

/// Copies that are long enough for copy engines: ragged, in chunks of rows and of columns, paced or not, pulled.
TEST_P(OnGpus, CopyEngines) {
  const bool gathers = this->gathers();
  const bool scatters = structure().after == Collective::reduce_scatter;
  const bool exchanges = structure().after == Collective::all_to_all;
  if (ranks() == 1 || (!gathers && !scatters && !exchanges)) GTEST_SKIP() << "all-reduces send tile by tile";
  if (shares_gpus()) GTEST_SKIP() << "too few GPUs";
  uint64_t seed = 600;
  for (const bool more : {false, true}) {
    Problem problem{.op = op(), .m = 2051, .n = 2056, .k = 72 * ranks(), .dtype = DType::bf16};
    if (gathers) problem.n = 264, problem.k = 2056;
    if (exchanges) problem.n = 1320 * ranks();
    if (more) problem.dtype = DType::fp16, problem.b_layout = BLayout::kn, problem.epilogue = {{EpilogueKind::bias}};
    problem.gathered_output = gathers && more;
    const Config whole{.tile_n = 128, .transport = Transport::copy_engine};
    std::vector<Config> configs(6, whole);
    configs[1].pacing = Pacing::lockstep;
    configs[2].chunk_rows = 256;
    configs[3].chunk_rows = 256, configs[3].copy_lanes = 2, configs[3].pacing = Pacing::lockstep;
    configs[4].direction = Direction::pull;
    configs[5].chunk_cols = 1032;
    std::erase_if(configs, [&](const Config& config) {
      return find_schedule(config.schedule).refuses(problem, {.num_ranks = ranks()}, config).has_value();
    });
    for (const Config& config : configs) {
      const Plan plan = make_plan(problem, {.num_ranks = ranks()}, config);
      const Plan lowered = lower(plan, gpu_target("h200", ranks(), 132)).plan;
      const bool engines = std::ranges::any_of(lowered.lanes, [](const Lane& l) { return l.engine == Engine::copy; });
      // NOTE: of columns, a chunk of some rows is short.
      EXPECT_TRUE(engines || (structure().by_columns && config.chunk_rows > 0))
          << to_string(config) << " has no lane of a copy engine";
    }
    ASSERT_GE(configs.size(), 2U);
    expect_right(problem, ranks(), configs, {.num_calls = 3, .backend = "cuda", .timeout_s = 10, .seed = ++seed});
  }
}

/// Few rows, many ranks: a tile has more posts, and a sum more partials, than shared memory has records for.
TEST(Cuda, MoreRecordsThanAreAtHand) {
  if (const auto reason = cuda::cuda_unavailable()) GTEST_SKIP() << *reason;
  constexpr int kRanks = 9;
  uint64_t seed = 500;
  for (const char* op : kOperators) {
    const Problem problem{.op = op, .m = 64, .n = 264, .k = 64 * kRanks, .dtype = DType::bf16};
    for (const Config& base : {Config{.tile_m = 64, .tile_n = 128}, Config{.tile_m = 64, .tile_n = 64}}) {
      auto configs = few(all_variants(problem, {.num_ranks = kRanks}, base), 8, ++seed);
      if (sums(find_operator(op).structure)) configs.push_back(base), configs.back().transport = Transport::ll;
      expect_right(problem, kRanks, configs, {.num_calls = 2, .backend = "cuda", .timeout_s = 20, .seed = seed});
    }
  }
}

/// Long tiles, during which the partials of a sum of the same wave are loaded.
TEST_P(OnGpus, SumsDuringLongTiles) {
  if (!structure().multiplies || !sums(structure())) GTEST_SKIP() << "no tiles sum";
  const Problem problem{.op = op(), .m = 128 * ranks(), .n = 520, .k = 3136 * ranks(), .dtype = DType::bf16};
  std::vector<Config> configs;
  for (const int rounds : {1, 2}) {
    configs.push_back({.tile_n = 128, .group_m = 2, .tile_workers = 2, .rounds = rounds});
    configs.push_back({.tile_n = 128, .cluster_m = 2, .group_m = 4, .tile_workers = 4, .rounds = rounds});
  }
  for (Config& config : configs) config.transport = Transport::tma;
  expect_right(problem, ranks(), configs, {.num_calls = 2, .backend = "cuda", .timeout_s = 10, .seed = 43});
  // One step less than the late sum needs; exactly as many, but with a bias, and without.
  for (const int64_t steps : {87, 88}) {
    Problem long_tiles{.op = op(), .m = 128 * ranks(), .n = 520, .k = steps * 64 * ranks(), .dtype = DType::bf16};
    const Config pairs{.cluster_m = 2, .group_m = 4, .tile_workers = 4, .transport = Transport::tma, .rounds = 2};
    expect_right(long_tiles, ranks(), {pairs}, {.num_calls = 1, .backend = "cuda", .timeout_s = 10, .seed = 44});
    if (steps != 88 || ranks() != 2) continue;
    long_tiles.epilogue = {{EpilogueKind::bias}};
    expect_right(long_tiles, ranks(), {pairs}, {.num_calls = 1, .backend = "cuda", .timeout_s = 10, .seed = 45});
  }
}

/// Copies by few threads of a CTA: rows of three, two or one piece, or three rows in a piece; by one worker, whose
/// buffers are reused; to all peers at once; and to tiles with rows of two shards.
TEST_P(OnGpus, LongRows) {
  if (op() != std::string("all_gather_gemm")) GTEST_SKIP() << "only gathers copy rows of A";
  const Problem problem{.op = op(), .m = 50, .n = 40, .k = 8456, .dtype = DType::bf16};
  for (const int64_t chunk_cols : {0, 4232, 2824, 1032}) {
    Config config{.tile_m = 64, .tile_n = 128, .copy_workers = 1, .chunk_rows = 9, .chunk_cols = chunk_cols};
    std::vector<Config> configs{config, config};
    configs[1].group_m = 8;
    configs[1].tile_order = TileOrder::in_step;
    config.direction = Direction::pull;
    if (chunk_cols == 0) configs.push_back(config);
    expect_right(problem, ranks(), configs, {.num_calls = 3, .backend = "cuda", .timeout_s = 10, .seed = 700});
  }
  Config config{.tile_m = 256, .tile_n = 192, .group_m = 8, .copy_workers = 1, .chunk_rows = 90, .chunk_cols = 1032};
  config.tile_order = TileOrder::in_step;
  Config alone = config;  // local rows by copies of their own
  alone.copy_workers = 4;
  alone.tile_order = TileOrder::rank_shifted;
  // Local rows that tiles cannot load in place: the first or the last rows of a tile, and at both ends of a shard.
  for (const int64_t m : {330, 128 * ranks(), 328 * ranks()}) {
    const Problem shared{.op = op(), .m = m, .n = 40, .k = 4128, .dtype = DType::bf16};
    expect_right(shared, ranks(), {config, alone}, {.num_calls = 3, .backend = "cuda", .timeout_s = 10, .seed = 701});
  }
}

/// LL data: the summing CTAs poll the elements; on tensor cores and worker CTAs, in 16 and 32 bits, full and ragged.
TEST_P(OnGpus, FlagsTravelWithTheData) {
  if (!sums(structure())) GTEST_SKIP() << "tiles load LL data without polling";
  const bool scatters = structure().after == Collective::reduce_scatter;
  uint64_t seed = 800;
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
    for (const auto& [m, n] : {std::pair<int64_t, int64_t>{16, 1024}, {65, 1032}, {300, 260}, {7, 17}, {0, 8}}) {
      Problem problem{.op = op(), .m = m, .n = n, .k = 136, .dtype = dtype};
      if (m == 16 && structure().multiplies) problem.epilogue = {{EpilogueKind::bias}};
      if (m == 300) problem.out_dtype = DType::fp32;
      if (m == 65) problem.arena = {structure().multiplies ? "c" : "y"};
      const Config stores{.tile_m = 64, .tile_n = 128, .reduce_workers = 5};
      std::vector<Config> configs{stores, stores};
      configs[1].transport = Transport::ll;
      if (m == 16) configs.push_back(configs[1]), configs.back().wire = DType::fp32;
      if (structure().multiplies && m == 300) configs.push_back(configs[1]), configs.back().split_k = 3;
      if (!scatters) configs.push_back(configs[1]), configs.back().algorithm = Algorithm::one_shot;
      expect_right(problem, ranks(), configs, {.num_calls = 4, .backend = "cuda", .timeout_s = 10, .seed = ++seed});
    }
  }
}

/// Every kind of send, sum and receive once. bench/gpu_check.sh runs it under compute-sanitizer, which makes kernels
/// hundreds of times slower.
TEST_P(OnGpus, ForSanitizers) {
  const Problem problem{
      .op = op(), .m = 130, .n = 264, .k = 72 * ranks(), .dtype = DType::bf16, .reduction = Reduction::any};
  const Config tiles{.tile_m = 64, .tile_n = 128, .tile_workers = 2, .reduce_workers = 2};
  std::vector<Config> configs;
  const auto with = [&](auto&& change) { change(configs.emplace_back(tiles)); };
  if (gathers()) {
    const bool of_rows = !structure().by_columns;
    with([](Config& c) { c.reduce_workers = 0, c.chunk_rows = 20; });
    if (of_rows) with([](Config& c) { c.reduce_workers = 0, c.direction = Direction::pull; });
    with([](Config& c) { c.reduce_workers = 0, c.tile_m = 72; });
  } else if (structure().after == Collective::all_to_all) {
    with([](Config&) {});
    with([](Config& c) { c.transport = Transport::copy_engine, c.chunk_rows = 20; });
    with([](Config& c) { c.transport = Transport::bulk, c.rounds = 2; });
    with([](Config& c) { c.transport = Transport::tma, c.tile_m = 72; });
    with([](Config& c) { c.transport = Transport::tma, c.tile_m = 128, c.cluster_m = 2; });
  } else {
    const bool products = structure().multiplies;
    with([](Config&) {});
    with([](Config& c) { c.transport = Transport::ll; });
    with([](Config& c) { c.reduce_mode = ReduceMode::accumulate; });
    with([](Config& c) { c.algorithm = Algorithm::ring; });
    if (products) with([](Config& c) { c.transport = Transport::bulk; });
    if (products) with([](Config& c) { c.transport = Transport::tma, c.tile_m = 72; });
    if (products) with([](Config& c) { c.transport = Transport::tma, c.tile_m = 128, c.cluster_m = 2; });
    if (products) with([](Config& c) { c.transport = Transport::tma, c.reduce_mode = ReduceMode::accumulate; });
  }
  for (Config& config : configs) {
    if (!structure().multiplies) config.tile_workers = 0;
  }
  // NOTE: when a rank's kernel has ended, the sanitizer waits for all running kernels of the GPU. Another rank's next
  // call,
  // which waits for this rank, must not be among them.
  expect_right(problem, ranks(), configs,
               {.num_calls = 2, .backend = "cuda", .meet = true, .timeout_s = 120, .seed = 950});
}

/// Inputs with the bits of missing LL data: they are NaN, and no poll waits for ever.
TEST(Cuda, FlagsAreNoNumbers) {
  if (const auto reason = cuda::cuda_unavailable()) GTEST_SKIP() << *reason;
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
    const Problem problem{.op = "all_reduce", .m = 24, .n = 136, .dtype = dtype};
    const int64_t bytes = problem.m * problem.n * bytes_of(dtype);
    launch(2, {.backend = "cuda", .threads = true, .timeout_s = 5}, [&](Group& group) {
      const auto x = group.new_memory(bytes);
      const auto y = group.new_memory(bytes);
      const Tensor input = make_tensor(x.get(), dtype, problem.m, problem.n);
      const Tensor output = make_tensor(y.get(), dtype, problem.m, problem.n);
      const std::vector<uint8_t> ones(bytes, 0xFF);
      group.copy(x.get(), ones.data(), bytes);
      for (const Algorithm algorithm : {Algorithm::direct, Algorithm::one_shot}) {
        Op op = make_op(group, problem, Config{.transport = Transport::ll, .algorithm = algorithm});
        for (int call = 0; call < 2; ++call) {
          std::vector<uint8_t> result(bytes, 0);
          group.copy(y.get(), result.data(), bytes);
          op.run_and_wait(std::span(&input, 1), std::span(&output, 1));
          group.copy(result.data(), y.get(), bytes);
          for (int64_t at = 0; at < bytes; at += bytes_of(dtype)) {
            if (!std::isnan(load_one(&result[at], dtype))) throw Error(ErrorKind::internal, "a sum of NaN is a number");
          }
        }
      }
    });
  }
}

/// The sums of `two_stream` in a kernel of their own, with tensors outside of the arena and in it.
TEST_P(OnGpus, TwoLaunches) {
  if (op() != std::string("gemm_all_reduce")) GTEST_SKIP() << "two_stream has tiles for gemm_all_reduce only";
  if (shares_gpus()) GTEST_SKIP() << "too few GPUs";
  for (const Release release : {Release::tile, Release::all}) {
    Problem problem{.op = op(), .m = 264, .n = 520, .k = 128 * ranks(), .dtype = DType::bf16};
    if (release == Release::all) problem.arena = {"c"};
    const Config config{.schedule = "two_stream", .tile_n = 128, .launches = 2, .release = release};
    expect_right(problem, ranks(), {config}, {.num_calls = 3, .backend = "cuda", .timeout_s = 10, .seed = 600});
  }
}

// NOTE: ranks that share a GPU do not call the library; so several ranks need as many GPUs.
TEST_P(OnGpus, OneCallOfTheLibrary) {
  if (!structure().multiplies) GTEST_SKIP() << "there is no GEMM";
  if (shares_gpus()) GTEST_SKIP() << "too few GPUs";
  uint64_t seed = 300;
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
    for (const BLayout layout : {BLayout::nk, BLayout::kn}) {
      // NOTE: the library adds a bias of the output's type only.
      const bool wide = (dtype == DType::bf16) == (layout == BLayout::kn);
      Problem problem{.op = op(), .m = 514, .n = 264, .k = 136, .dtype = dtype, .b_layout = layout};
      problem.out_dtype = wide ? DType::fp32 : dtype;
      if (!wide) problem.epilogue = {{EpilogueKind::bias}, {EpilogueKind::relu}};
      problem.allow_tf32 = layout == BLayout::kn;
      std::vector<Config> configs = all_variants(problem, {.num_ranks = ranks()}, {.chunk_rows = 100});
      std::erase_if(configs, [](const Config& config) { return config.compute != Provider::library; });
      expect_right(problem, ranks(), few(configs, 6, ++seed),
                   {.num_calls = 2, .backend = "cuda", .timeout_s = 10, .seed = seed});
    }
  }
}

TEST_P(OnGpus, ColumnsAtTheirOwners) {
  if (op() != std::string("gemm_all_reduce")) GTEST_SKIP() << "only all-reduces have owners of columns";
  if (shares_gpus()) GTEST_SKIP() << "too few GPUs";
  uint64_t seed = 700;
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
    for (const BLayout layout : {BLayout::nk, BLayout::kn}) {
      // Units of 16 bytes; columns of owners that begin at half a unit, and at two bytes.
      for (const int64_t cols : {int64_t{128}, int64_t{132}, int64_t{131}}) {
        for (const bool in_arena : {false, true}) {
          Problem problem{.op = op(), .m = 150, .n = cols * ranks(), .k = 136, .dtype = dtype, .b_layout = layout};
          if (in_arena) problem.arena = {"c"};
          if (cols == 131) problem.epilogue = {{EpilogueKind::bias}};
          const Config config{.tile_m = 16, .tile_n = 64, .compute = Provider::library};
          expect_right(problem, ranks(), {config},
                       {.num_calls = 3, .backend = "cuda", .timeout_s = 10, .seed = ++seed});
        }
      }
    }
  }
}

TEST_P(OnGpus, OneCollectiveOfTheLibrary) {
  if (ranks() == 1) GTEST_SKIP() << "one rank has nothing to exchange";
  if (shares_gpus()) GTEST_SKIP() << "too few GPUs";
  if (const auto reason = cuda::missing_nccl()) GTEST_SKIP() << *reason;
  if (structure().after == Collective::all_to_all) GTEST_SKIP() << "the library's all-to-all is not called";
  if (structure().by_columns) GTEST_SKIP() << "the library gathers and scatters rows";
  const bool has_gemm = structure().multiplies;
  uint64_t seed = 400;
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
    for (const bool more : {false, true}) {
      if (dtype == (more ? DType::fp32 : DType::fp16)) continue;
      Problem problem{.op = op(), .m = 512, .n = 264, .k = 136, .dtype = dtype, .reduction = Reduction::any};
      problem.b_layout = more ? BLayout::kn : BLayout::nk;
      problem.gathered_output = more && op() == std::string("all_gather_gemm");
      if (has_gemm && more) problem.epilogue = {{EpilogueKind::bias}, {EpilogueKind::relu}};
      Config config{.schedule = "sequential", .collective = Provider::library};
      if (has_gemm) config.compute = Provider::library;
      std::vector<Config> configs{config};
      config.wire = DType::fp32;
      if (!find_schedule(config.schedule).refuses(problem, {.num_ranks = ranks()}, config)) configs.push_back(config);
      expect_right(problem, ranks(), configs, {.num_calls = 3, .backend = "cuda", .timeout_s = 30, .seed = ++seed});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, OnGpus, ::testing::Combine(::testing::ValuesIn(kOperators), ::testing::Values(1, 2, 4)),
                         [](const auto& test) {
                           return fmt::format("{}_{}_ranks", std::get<0>(test.param), std::get<1>(test.param));
                         });

}  // namespace
}  // namespace tilewire::testing
