// How tiles of every operator are made and stored: shapes, pairs, parts of K, stores and sums. See on_gpus.hpp.
// NOTE: part of the executable cuda_operators.
#include <array>

#include "backends/cuda/tables/lane_tables.hpp"
#include "on_gpus.hpp"
#include "tilewire/make_plan.hpp"

namespace tilewire::testing {
namespace {

/// Tiles are stored by threads, bulk and tensor copies, as partials, and by additions at peers.
TEST_P(OnGpus, TilesLeaveInEveryWay) {
  if (!structure().multiplies || structure().after == Collective::none) GTEST_SKIP() << "no tile leaves";
  uint64_t seed = 900;
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    for (const auto& [m, n] : {std::pair<int64_t, int64_t>{512, 1024}, {300, 264}, {65, 1032}, {130, 20}, {7, 17}}) {
      Problem problem{.op = op(), .m = m, .n = n, .k = 72 * ranks(), .dtype = dtype, .reduction = Reduction::any};
      if (m == 300) problem.out_dtype = DType::fp32;
      if (m == 65) problem.arena = {"c"};
      std::vector<Config> configs;
      for (const Transport transport : {Transport::store, Transport::bulk, Transport::tma}) {
        for (const ReduceMode reduction : {ReduceMode::staged, ReduceMode::accumulate}) {
          if (reduction == ReduceMode::accumulate && !sums(structure())) continue;
          Config config{.tile_m = 64, .tile_n = 128, .transport = transport, .reduce_mode = reduction};
          if (m == 300 || m == 130) config.tile_m = m == 300 ? 152 : 72;
          if (m == 512) config.tile_m = 128, config.tile_n = 256, config.cluster_m = 2;
          configs.push_back(config);
          if (m != 512) continue;
          config.tile_workers = 2;
          configs.push_back(config);
          config.tile_order = TileOrder::naive;
          if (reduction == ReduceMode::accumulate) configs.push_back(config);
        }
        if (structure().after != Collective::all_reduce) continue;
        configs.push_back({.tile_m = 64, .tile_n = 128, .transport = transport, .algorithm = Algorithm::one_shot});
      }
      expect_right(problem, ranks(), configs, {.num_calls = 3, .backend = "cuda", .timeout_s = 10, .seed = ++seed});
    }
  }
}

/// The tile that makes a hop's partial completes each hop of a ring, except with few tiles, or tiles of two owners.
TEST_P(OnGpus, HopsOfARingAreCompletedByTiles) {
  if (!structure().multiplies || !sums(structure())) GTEST_SKIP() << "no tiles sum";
  uint64_t seed = 970;
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{1024, 264}, {999, 136}, {300, 264}}) {
    Problem problem{.op = op(), .m = m, .n = n, .k = 320 * ranks(), .dtype = DType::bf16, .reduction = Reduction::any};
    if (m == 300) problem.epilogue = {{EpilogueKind::bias}};
    if (m == 999) problem.dtype = DType::fp16, problem.out_dtype = DType::fp32, problem.arena = {"c"};
    std::vector<Config> configs;
    for (const Transport transport : {Transport::store, Transport::bulk, Transport::tma, Transport::copy_engine}) {
      Config config{.tile_m = 128, .tile_n = 128, .group_m = 8, .transport = transport, .algorithm = Algorithm::ring};
      configs.push_back(config);
      config.rounds = 4;
      config.cluster_m = 2;
      config.tile_workers = 4;
      configs.push_back(config);
    }
    expect_right(problem, ranks(), configs, {.num_calls = 3, .backend = "cuda", .timeout_s = 10, .seed = ++seed});
  }
}

/// A hop and an owner's last sum are neighbours in a list, but only the latter has a bias: they are no pair, whose
/// partials would have to arrive at the same time.
TEST(Cuda, HopsAndLastSumsAreNoPairs) {
  if (const auto reason = cuda::cuda_unavailable()) GTEST_SKIP() << *reason;
  Problem problem{.op = "gemm_reduce_scatter", .m = 1152, .n = 256, .k = 3 * 1024, .dtype = DType::bf16};
  problem.reduction = Reduction::any;
  problem.epilogue = {{EpilogueKind::bias}};
  Config config{.tile_m = 128, .tile_n = 256, .cluster_m = 2, .algorithm = Algorithm::ring};
  config.tile_workers = 2;
  std::vector<Config> configs{config};
  config.transport = Transport::tma;
  configs.push_back(config);
  expect_right(problem, 3, configs, {.num_calls = 3, .backend = "cuda", .timeout_s = 10, .seed = 990});
}

/// Tiles of any multiple of 8 rows, on tensor cores: alone, in pairs, with split-K, and many per CTA.
TEST_P(OnGpus, RowsOfTilesAreFree) {
  if (!structure().multiplies) GTEST_SKIP() << "there is no GEMM";
  const bool gathers = this->gathers();
  uint64_t seed = 950;
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{300, 264}, {450, 136}, {101, 264}}) {
    Problem problem{.op = op(), .m = m, .n = n * (gathers ? ranks() : 1), .dtype = DType::bf16};
    problem.k = (m == 101 ? 808 : 136) * (gathers ? 1 : ranks());
    if (m == 450) problem.dtype = DType::fp16, problem.b_layout = BLayout::kn;
    if (m == 450) problem.out_dtype = DType::fp32;
    if (m == 101) problem.epilogue = {{EpilogueKind::bias}};
    std::vector<Config> configs;
    for (const int rows : {80, 104, 152, 248}) {
      Config config{.tile_m = rows, .tile_n = 128, .group_m = 4, .transport = Transport::tma};
      if (gathers) config.transport = Transport::store, config.chunk_rows = 40;
      configs.push_back(config);
      config.tile_workers = 2;
      configs.push_back(config);
      config.cluster_m = 2;
      configs.push_back(config);
      std::swap(config.cluster_m, config.cluster_n);
      if (!gathers) config.rounds = 2;
      configs.push_back(config);
      if ((rows != 104 && rows != 152) || m != 101) continue;
      config.cluster_n = 1;
      config.cluster_split_k = 2;
      configs.push_back(config);
      config.transport = Transport::ll;
      if (sums(structure())) configs.push_back(config);
    }
    for (const Config& config : configs) {
      EXPECT_EQ(slow_tiles(make_plan(problem, {.num_ranks = ranks()}, config)), std::nullopt);
    }
    expect_right(problem, ranks(), configs, {.num_calls = 3, .backend = "cuda", .timeout_s = 10, .seed = ++seed});
  }
}

/// Tiles that two CTAs make together, in one wave and in several: their results are stored like those of other tiles.
TEST_P(OnGpus, PartsOfKInClusters) {
  if (!structure().multiplies) GTEST_SKIP() << "there is no GEMM";
  const bool gathers = this->gathers();
  uint64_t seed = 1000;
  for (const int64_t m : {64, 130}) {
    Problem problem{.op = op(), .m = m, .n = 200 * (gathers ? ranks() : 1), .dtype = DType::bf16};
    problem.k = 1608 * (gathers ? 1 : ranks());
    if (m == 130) problem.dtype = DType::fp16, problem.epilogue = {{EpilogueKind::bias}};
    std::vector<Config> configs;
    for (const auto& [rows, cols] : {std::pair<int, int>{128, 128}, {128, 64}, {64, 128}}) {
      configs.push_back({.tile_m = rows, .tile_n = cols, .cluster_split_k = 2, .transport = Transport::tma});
      if (gathers) configs.back().transport = Transport::store, configs.back().chunk_rows = 20;
      if (gathers && !structure().by_columns && m == 130) configs.back().chunk_cols = 400;
      configs.push_back(configs.back());
      configs.back().tile_workers = 2;
      if (sums(structure()) && m == 64) configs.back().transport = Transport::ll;
    }
    expect_right(problem, ranks(), configs, {.num_calls = 3, .backend = "cuda", .timeout_s = 10, .seed = ++seed});
  }
}

/// More sums, and more copies to the output, than worker CTAs: with a GPU for each rank, helper CTAs take some.
TEST_P(OnGpus, HelperCtasHelp) {
  if (!structure().multiplies || !sums(structure())) GTEST_SKIP() << "nothing to help";
  uint64_t seed = 1100;
  for (const int64_t m : {128, 520}) {
    const Problem problem{.op = op(), .m = m, .n = 1032, .k = 72 * ranks(), .dtype = DType::bf16};
    std::vector<Config> configs;
    for (const int workers : {0, 1, 3}) {
      configs.push_back({.tile_m = 64, .tile_n = 128, .reduce_workers = workers, .transport = Transport::tma});
      configs.push_back(configs.back());
      configs.back().reduce_mode = ReduceMode::pull, configs.back().transport = Transport::store;
      configs.push_back({.tile_m = 64, .tile_n = 128, .reduce_workers = workers, .transport = Transport::ll});
      configs.push_back({.tile_m = 128, .cluster_m = 2, .tile_workers = 2, .reduce_workers = workers});
      if (op() == std::string("gemm_all_reduce"))
        configs.push_back({.schedule = "two_stream", .tile_n = 128, .reduce_workers = workers});
    }
    expect_right(problem, ranks(), configs, {.num_calls = 4, .backend = "cuda", .timeout_s = 10, .seed = ++seed});
  }
}

/// Tiles whose chunks overlap: no element is added or published twice.
TEST_P(OnGpus, TilesOf160Columns) {
  if (!structure().multiplies) GTEST_SKIP() << "no tiles";
  uint64_t seed = 1200;
  for (const BLayout layout : {BLayout::nk, BLayout::kn}) {
    const int64_t n = gathers() ? 488 * ranks() : 488;
    const Problem problem{.op = op(),
                          .m = 330,
                          .n = n,
                          .k = 72 * ranks(),
                          .dtype = DType::bf16,
                          .b_layout = layout,
                          .reduction = Reduction::any};
    std::vector<Config> configs;
    const auto with = [&](auto&& change) { change(configs.emplace_back(Config{.tile_n = 160, .tile_workers = 2})); };
    with([](Config&) {});
    with([](Config& c) { c.cluster_m = 2, c.group_m = 2; });
    if (structure().after != Collective::none) {
      for (const Transport way : {Transport::tma, Transport::bulk}) with([&](Config& c) { c.transport = way; });
    }
    if (sums(structure())) {
      with([](Config& c) { c.transport = Transport::ll; });
      for (const Transport way : {Transport::store, Transport::tma, Transport::bulk}) {
        with([&](Config& c) { c.transport = way, c.reduce_mode = ReduceMode::accumulate; });
      }
      with([](Config& c) { c.reduce_mode = ReduceMode::pull; });
    }
    expect_right(problem, ranks(), configs, {.num_calls = 3, .backend = "cuda", .timeout_s = 10, .seed = ++seed});
  }
}

/// A one-shot all-reduce of LL data, as the kernels for few rows take it.
Config one_shot(int64_t tile_m, int64_t tile_n, DType dtype) {
  Config config{.schedule = "fused", .tile_m = tile_m, .tile_n = tile_n};
  config.transport = Transport::ll;
  config.algorithm = Algorithm::one_shot;
  config.wire = dtype;
  return config;
}

/// The GEMV kernel: up to 16 rows, columns and K in multiples of 8, where it joins the ranks' sums to its tiles.
TEST_P(OnGpus, FewRowsByTheGemvKernel) {
  const bool reduces = structure().multiplies && structure().after == Collective::all_reduce;
  if (!reduces || ranks() < 2) GTEST_SKIP() << "no sum of products over ranks";
  uint64_t seed = 850;
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1024, 512},
                                {2, 8, 8},
                                {5, 264, 1000},
                                {8, 1000, 2056},
                                {9, 40, 136},
                                {16, 1536, 520},
                                {13, 2000, 4096}}) {
    for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
      for (const BLayout layout : {BLayout::nk, BLayout::kn}) {
        Problem problem{.op = op(), .m = m, .n = n, .k = k * ranks(), .dtype = dtype, .b_layout = layout};
        if (seed % 3 == 0) problem.epilogue = {{EpilogueKind::bias}, {EpilogueKind::gelu}, {EpilogueKind::residual}};
        const int64_t most = most_gemv_cols(dtype);
        expect_right(problem, ranks(), {one_shot(16, n < most ? n : most - 8, dtype)},
                     {.num_calls = 4, .backend = "cuda", .timeout_s = 10, .seed = ++seed});
      }
    }
  }
}

/// The GEMV kernel of a rank alone: tiles are stored as they are made, also in several waves.
TEST_P(OnGpus, FewRowsByTheGemvKernelAlone) {
  if (op() != std::string("all_gather_gemm") || ranks() > 1) GTEST_SKIP() << "a rank alone has no sums";
  uint64_t seed = 1150;
  for (const auto& [m, n, k, tile_n] : {std::array<int64_t, 4>{1, 1024, 512, 8},
                                        {4, 8192, 1032, 64},
                                        {16, 4104, 264, 32},
                                        {9, 28672, 136, 112},
                                        {3, 40, 8, 40}}) {
    for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
      for (const BLayout layout : {BLayout::nk, BLayout::kn}) {
        Problem problem{.op = op(), .m = m, .n = n, .k = k, .dtype = dtype, .b_layout = layout};
        if (seed % 3 == 0) problem.epilogue = {{EpilogueKind::bias}, {EpilogueKind::gelu}};
        if (seed % 3 == 1) problem.epilogue = {{EpilogueKind::swiglu_pairs}};
        if (seed % 2 == 0) problem.constant = {"b"};
        const int64_t most = most_gemv_cols(dtype) / columns_of_b(problem, 1);
        expect_right(problem, ranks(), {{.schedule = "fused", .tile_m = 16, .tile_n = std::min(tile_n, most)}},
                     {.num_calls = 4, .backend = "cuda", .timeout_s = 10, .seed = ++seed});
      }
    }
  }
}

/// The same with norms of each CTA's columns.
TEST_P(OnGpus, FewRowsAndTheirNormsByTheGemvKernel) {
  const bool reduces = structure().multiplies && structure().after == Collective::all_reduce;
  if (!reduces || ranks() < 2) GTEST_SKIP() << "no sum of products over ranks";
  uint64_t seed = 950;
  int shapes = 0;
  for (const auto& [m, n, k, tile_n] : {std::array<int64_t, 4>{1, 8192, 512, 64},
                                        {1, 16000, 64, 128},
                                        {3, 1000, 2056, 64},
                                        {7, 4096, 520, 32},
                                        {8, 4104, 136, 64},
                                        {16, 8192, 520, 64},
                                        {12, 5120, 264, 40},
                                        {13, 2000, 4096, 80},
                                        {16, 600, 1032, 16}}) {
    ++shapes;
    for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
      Problem problem{.op = op(), .m = m, .n = n, .k = k * ranks(), .dtype = dtype};
      if (seed % 2 == 0) problem.b_layout = BLayout::kn;
      // Each kind with each type.
      problem.norm = Norm{(shapes % 2 == 0) == (dtype == DType::bf16) ? NormKind::layer : NormKind::rms, 1e-5};
      if (shapes % 3 == 0) problem.constant = {"b"};
      if (problem.norm->kind == NormKind::rms && shapes % 3 > 0)
        problem.norm->out_dtype = shapes % 3 == 1 ? DType::fp8_e4m3 : DType::int8;
      if (seed % 3 == 0) problem.epilogue = {{EpilogueKind::bias}, {EpilogueKind::gelu}, {EpilogueKind::residual}};
      if (seed % 3 == 1) problem.epilogue = {{EpilogueKind::residual}};
      const bool in_place = seed % 3 == 1;
      expect_right(problem, ranks(), {one_shot(16, std::min<int64_t>(tile_n, most_gemv_cols(dtype)), dtype)},
                   {.num_calls = 4, .backend = "cuda", .timeout_s = 10, .seed = ++seed, .in_place = in_place});
    }
  }
}

/// All-reduces of few rows, by the kernel of rows: whole rows, and equal parts of them. Worker CTAs take uneven parts.
TEST_P(OnGpus, RowsOfAnAllReduce) {
  if (structure().multiplies || structure().after != Collective::all_reduce || ranks() < 2) GTEST_SKIP();
  uint64_t seed = 1050;
  for (const auto& [m, n, cols] : {std::array<int64_t, 3>{1, 8192, 1024},
                                   {1, 8, 8},
                                   {3, 1000, 200},
                                   {16, 8192, 1024},
                                   {64, 4104, 2056},
                                   {64, 8192, 4096},
                                   {128, 8192, 8192},
                                   {5, 16384, 2048},
                                   {5, 16384, 16384},
                                   {7, 4096, 1368}}) {
    for (const DType dtype : {DType::bf16, DType::fp16}) {
      Problem problem{.op = op(), .m = m, .n = n, .dtype = dtype};
      if (seed % 4 > 0) problem.norm = Norm{seed % 4 == 1 ? NormKind::layer : NormKind::rms, 1e-5};
      if (seed % 4 == 3) problem.norm->out_dtype = seed % 8 == 3 ? DType::fp8_e4m3 : DType::int8;
      if (seed % 3 > 0) problem.epilogue = {{EpilogueKind::residual}};
      const bool in_place = seed % 3 == 1;
      expect_right(problem, ranks(), {one_shot(1, cols, dtype)},
                   {.num_calls = 4, .backend = "cuda", .timeout_s = 10, .seed = ++seed, .in_place = in_place});
    }
  }
}

/// A GEMM of the library, then the kernel of rows; with fp32 or uneven parts worker CTAs take the sums.
TEST_P(OnGpus, RowsOfAGemmOfTheLibrary) {
  const bool reduces = structure().multiplies && structure().after == Collective::all_reduce;
  if (!reduces || ranks() < 2) GTEST_SKIP() << "no sum of products over ranks";
  if (shares_gpus()) GTEST_SKIP() << "too few GPUs";
  uint64_t seed = 1250;
  for (const auto& [m, n, k, cols] : {std::array<int64_t, 4>{1, 8192, 512, 1024},
                                      {17, 1000, 264, 200},
                                      {64, 8192, 520, 4096},
                                      {128, 4104, 136, 4104},
                                      {30, 4096, 1032, 1024},
                                      {5, 600, 264, 256}}) {
    for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
      Problem problem{.op = op(), .m = m, .n = n, .k = k * ranks(), .dtype = dtype};
      if (seed % 2 == 0) problem.b_layout = BLayout::kn;
      if (seed % 4 > 1) problem.norm = Norm{seed % 4 == 2 ? NormKind::layer : NormKind::rms, 1e-5};
      if (seed % 3 > 0) problem.epilogue = {{EpilogueKind::residual}};
      Config config = one_shot(1, cols, dtype);
      config.compute = Provider::library;
      expect_right(problem, ranks(), {config}, {.num_calls = 4, .backend = "cuda", .timeout_s = 10, .seed = ++seed});
    }
  }
}

}  // namespace
}  // namespace tilewire::testing
