// Groups of GPUs on a fake runtime and driver: the ranks' GPUs, agreement, memory, broken teams, teardown.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <tuple>

#include "backends/cuda/cuda.hpp"
#include "backends/cuda/runtime/group.hpp"
#include "cuda/fake_driver.hpp"
#include "cuda/fake_runtime.hpp"
#include "ranks/plans.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire {
namespace {

using cuda::CudaGroup;
using testing::error_of;
using testing::FakeUse;
using testing::small_launch;
using testing::want;

constexpr int64_t kMiB = 1 << 20;

class CudaJoin : public ::testing::TestWithParam<bool> {
 protected:
  /// Ranks on the host that become a group of GPUs: the table of backends would report that there is no driver.
  void launch_ranks(int num_ranks, const std::function<void(CudaGroup&)>& body,
                    const std::function<void(JoinOptions&)>& before = {}) {
    const std::string job = fmt::format("cuda-join-test.{}", getpid());
    const std::shared_ptr<host::Segment> segment = host::Segment::create(num_ranks, kArena);
    launch(num_ranks, small_launch(GetParam()), [&](Group& launched) {
      JoinOptions options{launched.team().rank, num_ranks, job, kArena, 30};
      if (before) before(options);
      auto ranks = GetParam()
                       ? std::make_unique<host::HostGroup>(host::Membership{segment, Descriptor()}, options, false)
                       : host::join_host(options);
      const auto group = cuda::make_cuda_group(std::move(ranks), options);
      body(dynamic_cast<CudaGroup&>(*group));
    });
  }
  void TearDown() override {
    EXPECT_EQ(testing::fake_use(), FakeUse{});
    EXPECT_EQ(testing::fake_pages(), 0);
    EXPECT_EQ(testing::fake_streams(), 0);
  }

  static constexpr int64_t kArena = 512 * kMiB;
};
INSTANTIATE_TEST_SUITE_P(Fake, CudaJoin, ::testing::ValuesIn(testing::launch_modes()),
                         [](const auto& mode) { return mode.param ? "threads" : "processes"; });

TEST_P(CudaJoin, RanksGetTheirGpusAndKnowTheLinks) {
  const int num_ranks = GetParam() ? 4 : 2;
  launch_ranks(num_ranks, [&](CudaGroup& group) {
    want(group.backend() == "cuda" && group.team().num_ranks == num_ranks, "team");
    want(group.device() == group.rank() % 2, "GPU {} for rank {}", group.device(), group.rank());
    want(group.target().sms == 132 * 2 / num_ranks, "{} SMs", group.target().sms);
    for (int peer = 0; peer < num_ranks; ++peer) {
      const Link link = link_between(group.team(), group.rank(), peer);
      const bool same_gpu = peer % 2 == group.rank() % 2;
      want(link.reach == Reach::load_store && link.bandwidth_GBps == (same_gpu ? 0 : 389), "{} GB/s",
           link.bandwidth_GBps);
      want(group.team().devices[peer].copy_engines == 3, "engines");
      want(std::atomic_ref(group.head(peer)->abort).load() == 0, "the team is broken");
    }
    group.barrier();
  });
}

TEST_P(CudaJoin, KernelsTakeNoMoreSmsThanAllowed) {
  const auto with = [](int sms) { return [sms](JoinOptions& options) { options.sms = sms; }; };
  const auto has = [](int sms) {
    return [sms](CudaGroup& group) {
      const Target target = group.target();
      want(target.sms == sms && target.whole_gpu == (sms == 132), "{} SMs", target.sms);
      want(target.name == (sms == 132 ? "h200x2" : "h200x2_116_sms"), "{}", target.name);
      want(group.team().devices[1].sms == sms, "{} SMs", group.team().devices[1].sms);
    };
  };
  launch_ranks(2, has(116), with(116));
  launch_ranks(
      2, [](CudaGroup& group) { want(!group.target().whole_gpu && group.target().sms == 116, "rank 1 counts, too"); },
      [](JoinOptions& options) { options.sms = options.rank == 0 ? 0 : 116; });
  launch_ranks(2, has(132), with(1000));
}

TEST_P(CudaJoin, TensorsAreZeroAndPeersReachThem) {
  launch_ranks(2, [](CudaGroup& group) {
    for (const int64_t rows : {3, 0, 100'000, 30'000'000}) {
      const Tensor tensor = group.allocate(DType::fp32, rows, 1);
      const auto* values = static_cast<const float*>(tensor.data);
      for (int64_t i = 0; i < rows; i += 997) want(values[i] == 0, "element {}", i);
      if (rows == 0) continue;
      const int64_t offset = static_cast<std::byte*>(tensor.data) - group.at(group.rank(), 0);
      group.barrier();
      const auto mine = static_cast<float>(group.rank() + 1);
      std::memcpy(group.at(1 - group.rank(), offset + 4 * (rows - 1)), &mine, 4);
      group.barrier();
      want(values[rows - 1] == static_cast<float>(2 - group.rank()), "got {}", values[rows - 1]);
      group.barrier();
    }
    const Error error = error_of([&] { static_cast<void>(group.allocate(DType::fp32, 512, kMiB)); });
    want(error.kind() == ErrorKind::invalid_input, "{}", error.what());
    const host::Extent part = group.carve("a part", 100);
    group.give_back(part);
    const host::Extent again = group.carve("another part", 100);
    want(again.offset == part.offset, "{} and {}", part.offset, again.offset);
    want(group.status_page()[cuda::kStatusBytes - 1] == std::byte{0}, "the status page");
    group.barrier();
  });
}

TEST_P(CudaJoin, AFullGpuLeavesTheGroupAsItWas) {
  launch_ranks(2, [](CudaGroup& group) {
    group.barrier();
    testing::limit_fake_memory(70 * kMiB);
    group.barrier();
    const Error error = error_of([&] { static_cast<void>(group.allocate(DType::fp32, 200, kMiB / 4)); });
    want(error.kind() == ErrorKind::invalid_input, "{}", error.what());
    want(std::string(error.what()).find("rank 0: GPU 0 has no room for") != std::string::npos, "{}", error.what());
    // The part that was carved is free again.
    const int64_t before = group.carve("a part", 100).offset;
    want(before < 2 * kMiB, "{}", before);
    group.barrier();
    testing::limit_fake_memory(1024 * kMiB);
    group.barrier();
    static_cast<void>(group.allocate(DType::fp32, 200, kMiB / 4));
  });
}

TEST_P(CudaJoin, LocalRanksChooseTheGpu) {
  launch_ranks(
      2, [](CudaGroup& group) { want(group.device() == 1 - group.rank(), "GPU {}", group.device()); },
      [](JoinOptions& options) { options.local_rank = 3 - options.rank; });
}

TEST_P(CudaJoin, ABrokenGroupReachesTheDevices) {
  const Error error = error_of([&] {
    launch_ranks(2, [](CudaGroup& group) {
      group.barrier();
      if (group.rank() == 1) {
        group.fail_with(Error(ErrorKind::wrong_result, "on purpose"));
      }
      const auto begin = std::chrono::steady_clock::now();
      while (std::atomic_ref(group.head(group.rank())->abort).load() == 0) {
        want(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5), "no abort word on {}", group.rank());
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      const Error broken = error_of([&] { static_cast<void>(group.allocate(DType::fp32, 1, 1)); });
      want(broken.kind() == ErrorKind::rank_lost, "{}", broken.what());
      throw broken;
    });
  });
  EXPECT_NE(std::string(error.what()).find("rank 1 failed: on purpose"), std::string::npos) << error.what();
}

TEST_P(CudaJoin, ARankWithoutAGpuIsNamedByAll) {
  if (GetParam()) GTEST_SKIP() << "threads see the same GPUs";
  launch(2, small_launch(false), [](Group& launched) {
    if (launched.team().rank == 1) testing::set_fake_gpus(0);
    const JoinOptions options{launched.team().rank, 2, fmt::format("cuda-join-test.{}", getppid()), kArena, 30};
    const Error error = error_of([&] { static_cast<void>(cuda::make_cuda_group(host::join_host(options), options)); });
    want(error.kind() == ErrorKind::unsupported, "{}", error.what());
    want(std::string(error.what()).find("rank 1: cudaGetDeviceCount") == 0, "{}", error.what());
    want(testing::fake_pages() == 0 && testing::fake_streams() == 0, "left behind");
  });
}

TEST_P(CudaJoin, GpusThatCannotDoItAreNamed) {
  if (GetParam()) GTEST_SKIP() << "what is changed here is of all threads";
  for (const auto& [major, atomics, words] :
       {std::tuple<int, bool, const char*>{8, true,
                                           "(NVIDIA H200) has compute capability 8.0, the kernels are for 9.0"},
        {9, false, "the GPU of rank 0 cannot do atomic operations in the memory of the GPU of rank 1"}}) {
    launch(2, small_launch(false), [&](Group& launched) {
      testing::set_fake_kind(major, atomics);
      const JoinOptions options{launched.team().rank, 2, fmt::format("cuda-join-test.{}", getppid()), kArena, 30};
      const Error error =
          error_of([&] { static_cast<void>(cuda::make_cuda_group(host::join_host(options), options)); });
      want(error.kind() == ErrorKind::unsupported, "{}", error.what());
      want(std::string(error.what()).find(words) != std::string::npos, "{}", error.what());
      want(testing::fake_pages() == 0 && testing::fake_streams() == 0, "left behind");
    });
  }
}

TEST_P(CudaJoin, ProcessesMayNotShareAGpu) {
  if (GetParam()) GTEST_SKIP() << "threads may";
  const Error error = error_of([&] { launch_ranks(3, [](CudaGroup&) {}); });
  EXPECT_EQ(error.kind(), ErrorKind::unsupported);
  EXPECT_NE(std::string(error.what()).find("ranks 0 and 2 are processes that share one GPU (GPU-00000000-"),
            std::string::npos)
      << error.what();
}

TEST_P(CudaJoin, RanksThatShareAGpuNeedSeveralQueues) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
  launch_ranks(2, [](CudaGroup&) {});
  if (GetParam()) {
    const Error error = error_of([&] { launch_ranks(4, [](CudaGroup&) {}); });
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_NE(std::string(error.what()).find("one queue"), std::string::npos) << error.what();
  }
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
}

/// Rows of a table that are summed by indices, in one lane: a plan that the checker proves.
Plan pool_plan(int num_ranks) {
  Plan plan = testing::new_plan("pool", num_ranks);
  const int table = testing::add_buffer(plan, "table", DType::fp32, {8, 4}, Scope::input);
  const int indices = testing::add_buffer(plan, "indices", DType::int32, {4, 8}, Scope::input);
  const int out = testing::add_buffer(plan, "out", DType::fp32, {4, 4}, Scope::output);
  for (int rank = 0; rank < num_ranks; ++rank) {
    Task task{.kind = TaskKind::compute, .body = Body::pool};
    task.reads = {testing::whole(plan, rank, table), testing::whole(plan, rank, indices)};
    task.writes = {{testing::whole(plan, rank, out), 0, WriteMode::store}};
    testing::add_lane(plan, rank, Engine::tiles, "tiles").tasks = {task};
  }
  return plan;
}

/// The same operands as a product of 4 x 8 by 4 x 8.
Plan product_plan(int num_ranks, DType operands) {
  Plan plan = pool_plan(num_ranks);
  plan.buffers[0] = {.name = "a", .dtype = operands, .rows = 4, .cols = 8, .scope = Scope::input};
  plan.buffers[1] = {.name = "b", .dtype = operands, .rows = 4, .cols = 8, .scope = Scope::input};
  for (Lane& lane : plan.lanes) {
    Task& task = lane.tasks[0];
    task.body = Body::gemm;
    task.gemm.tile_m = 64;
    task.gemm.tile_n = 128;
    task.reads = {testing::whole(plan, lane.rank, 0), testing::whole(plan, lane.rank, 1)};
  }
  return plan;
}

TEST_P(CudaJoin, PlansWithoutAMeaningForTheKernelsAreRefused) {
  launch_ranks(2, [](CudaGroup& group) {
    const auto refused = [&](const Plan& plan, const std::string& name) {
      const auto names = group.unsupported(plan);
      want(names == std::vector<std::string>{name}, "want {}, got {}", name, fmt::join(names, ", "));
      const Error error = error_of([&] { static_cast<void>(group.load(plan)); });
      want(error.kind() == ErrorKind::unsupported, "{}", error.what());
      want(std::string(error.what()).find(name) != std::string::npos, "{}", error.what());
    };
    refused(pool_plan(2), "pools without weights");
    // Operands that the tensor cores would read as another type.
    Plan mixed = product_plan(2, DType::bf16);
    mixed.buffers[1].dtype = DType::fp16;
    refused(mixed, "products of bf16 and fp16");
    mixed = product_plan(2, DType::fp16);
    mixed.buffers[1].dtype = DType::fp32;
    refused(mixed, "products of fp16 and fp32");
    for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
      want(group.unsupported(product_plan(2, dtype)).empty(), "{}", to_string(dtype));
    }
    // int32 is moved as it is, but not converted.
    Plan copies = product_plan(2, DType::bf16);
    copies.buffers[0].dtype = copies.buffers[2].dtype = DType::int32;
    copies.buffers[2].cols = 8;
    for (Lane& lane : copies.lanes) {
      lane.tasks[0].kind = TaskKind::copy;
      lane.tasks[0].reads.pop_back();
      lane.tasks[0].writes = {{testing::whole(copies, lane.rank, 2), 0, WriteMode::store}};
    }
    want(group.unsupported(copies).empty(), "copies of int32");
    copies.buffers[2].dtype = DType::int8;
    refused(copies, "copies of int8");
  });
}

/// The refusal of a lowered plan from a file, after `change` to its tiles of rank 0.
std::string why_refused(CudaGroup& group, const Plan& made, const std::function<void(std::vector<Task*>&)>& change) {
  Plan plan = lower(made, group.target()).plan;
  std::vector<Task*> tiles;
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      if (lane.rank == 0 && task.kind == TaskKind::compute) tiles.push_back(&task);
    }
  }
  change(tiles);
  const auto names = group.unsupported(plan);
  return names.empty() ? "" : names[0];
}

TEST_P(CudaJoin, LoweredPlansWithTilesThatTheKernelHasNotAreRefused) {
  launch_ranks(2, [](CudaGroup& group) {
    using Tiles = std::vector<Task*>;
    const auto has = [](const std::string& text, const std::string& part) {
      want(text.find(part) != std::string::npos, "want '{}', got '{}'", part, text);
    };
    const Problem scatter{.op = "gemm_reduce_scatter", .m = 2048, .n = 1024, .k = 512};
    const Config pairs{.tile_m = 128, .tile_n = 256, .cluster_m = 2, .group_m = 8};
    const auto of_pairs = [&](const auto& change) {
      return why_refused(group, make_plan(scatter, group.team(), pairs), change);
    };
    want(of_pairs([](Tiles&) {}).empty(), "pairs are refused");
    has(of_pairs([](Tiles& tiles) { tiles[1]->gemm.cluster_m = 1, tiles[1]->gemm.cluster_n = 2; }),
        "cluster_m = 1, cluster_n = 2, cluster_split_k = 1 beside cluster_m = 2");
    has(of_pairs([](Tiles& tiles) { tiles[1]->reads[1].row += 8; }), "it is no pair with the one before");
    has(of_pairs([](Tiles& tiles) { tiles[tiles.size() - 2]->gemm.cluster_m = 1; }), "half of a pair");
    has(of_pairs([](Tiles& tiles) {
          for (Task* tile : tiles) tile->gemm.cluster_m = 4;
        }),
        "clusters of 4 x 1");
    Config in_step{.tile_m = 256, .tile_n = 192, .group_m = 8, .chunk_rows = 48, .chunk_cols = 128};
    in_step.tile_order = TileOrder::in_step;
    in_step.copy_workers = 3;
    const Problem gather{.op = "all_gather_gemm", .m = 256, .n = 1536, .k = 512};
    const auto of_rows = [&](const auto& change) {
      Plan plan = make_plan(gather, group.team(), in_step);
      for (Lane& lane : plan.lanes) {
        if (lane.name == "own") lane.engine = Engine::reduce;  // copies of pools may be omitted
      }
      return why_refused(group, plan, change);
    };
    want(of_rows([](Tiles&) {}).empty(), "rows in two places are refused");
    has(of_rows([](Tiles& tiles) { tiles[0]->reads.push_back(tiles[0]->reads[2]); }), "rows of A from 3 places");
    has(of_rows([](Tiles& tiles) { tiles[0]->reads[2].cols -= 8; }), "504 columns of bf16 below 512 of bf16");
    has(of_rows([](Tiles& tiles) {
          tiles[0]->reads[0].rows -= 8;
          tiles[1]->reads[0].rows -= 16;
          tiles[2]->reads[0].rows -= 24;
        }),
        "from 3 pairs of places, want at most 2");
  });
}

TEST_P(CudaJoin, ARankThatFailsEndsTheOthersAndLeavesNothing) {
  const Error error = error_of([&] {
    launch_ranks(2, [](CudaGroup& group) {
      static_cast<void>(group.allocate(DType::fp32, 100, 100));
      if (group.rank() == 1) fail(ErrorKind::wrong_result, "on purpose");
      group.barrier();
    });
  });
  EXPECT_EQ(error.kind(), ErrorKind::wrong_result) << error.what();
}

}  // namespace
}  // namespace tilewire
