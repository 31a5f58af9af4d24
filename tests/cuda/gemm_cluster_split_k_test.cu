// Cluster split-K: shapes, layouts, sums, waits, deadlines.
// A stand-alone program: one line per case, exit status 1 if any fails. `--small` = few cases, for compute-sanitizer.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "gemm_case.cuh"
#include "tilewire/error.hpp"

namespace {

std::string name_of(const Case& c, int parts) { return c.name() + " in " + std::to_string(parts) + " parts"; }

/// One CTA for each part of each tile; two clusters for all tiles; and tiles of which two of three post, so that one
/// CTA adds all of each. All give the same bits.
void product(const Case& c, int parts) {
  const Setup s(c);
  const Signals signals;
  std::vector<std::vector<uint8_t>> results;
  double error = 0;
  size_t tiles = 0;
  for (const bool posts : {false, true}) {
    HostTable host = plain_table(s.product());
    tiles = host.tiles.size();
    if (posts) signals.attach(host, 0, 0);
    for (size_t i = 0; i < tiles; i += 3) host.tiles[i].num_posts = 0;
    split_k_in_cluster(host, parts);
    const DeviceTable table = upload(host);
    GemmLaunch launch = s.launch(table);
    launch.cluster.k = static_cast<uint32_t>(parts);
    for (const uint32_t ctas : {0, 2 * parts}) {
      CHECK(cudaMemset(s.out.data, 0xff, s.out_bytes()));
      launch.ctas = ctas;
      for (int call = 0; call < 2; ++call) launch_gemm_tiles(s.kind(), launch, nullptr);
      CHECK(cudaDeviceSynchronize());
      error = std::max(error, s.error(s.out.data));
      results.push_back(s.bytes_of_result(s.out.data));
    }
  }
  bool same = signals.value(1) == 4 * (tiles - (tiles + 2) / 3);
  for (const std::vector<uint8_t>& result : results) same = same && result == results[0];
  report(name_of(c, parts), error < s.tolerance() && same, error);
}

/// Tiles that complete a sum of other partials, which arrive while the kernel runs.
void sums(const Case& c, int parts, int others_count, int own) {
  const Setup s(c);
  const OtherPartials others(s, others_count);
  const Signals signals;
  HostTable host = plain_table(s.product());
  const size_t tiles = host.tiles.size();
  others.attach(host, own, signals);
  split_k_in_cluster(host, parts);
  const DeviceTable table = upload(host);
  GemmLaunch launch = s.launch(table);
  launch.cluster.k = static_cast<uint32_t>(parts);
  launch.workers.watch = signals.watch(5'000'000'000ull);
  const Streams streams;
  add_to<<<1, 1>>>(signals.at(0), 0);  // load it now: loading waits for running kernels
  std::vector<std::vector<uint8_t>> results;
  double error = 0;
  for (const uint32_t ctas : {0, parts}) {
    CHECK(cudaMemset(s.out.data, 0xff, s.out_bytes()));
    CHECK(cudaMemset(signals.at(0), 0, 8));
    CHECK(cudaDeviceSynchronize());
    launch.ctas = ctas;
    launch_gemm_tiles(s.kind(true), launch, streams[0]);
    usleep(2000);
    add_to<<<1, 1, 0, streams[1]>>>(signals.at(0), 1);
    CHECK(cudaDeviceSynchronize());
    error = std::max(error, s.error(s.out.data));
    results.push_back(s.bytes_of_result(s.out.data));
  }
  const bool ok = error < s.rounding() && results[0] == results[1] && signals.failure->written == 0 &&
                  signals.value(1) == 2 * tiles;
  report("sums of " + std::to_string(others_count) + " others, " + name_of(c, parts), ok, error);
}

/// A's columns arrive in chunks that are not the parts of K: each part waits for the chunks that it needs. Poison until
/// then.
void waits_come_by_columns(TileShape shape, int parts) {
  constexpr int kCuts = 4;
  const Case c{.m = 200, .n = 328, .k = 2304, .shape = shape};
  const Setup s(c);
  const Signals signals;
  HostTable host = plain_table(s.product());
  const size_t tiles = host.tiles.size();
  signals.attach(host, 1, kCuts);
  host.waits.clear();
  const size_t cut = c.k / kCuts;
  for (uint32_t i = 0; i < kCuts; ++i) {
    host.waits.push_back({signals.at(0), i + 1, kCuts, i, i * static_cast<uint32_t>(cut) / kTileK});
  }
  for (TileRecord& tile : host.tiles) {
    tile.num_waits = kCuts;
    tile.flags |= kBStands;
  }
  split_k_in_cluster(host, parts);
  const DeviceTable table = upload(host);
  GemmLaunch launch = s.launch(table);
  launch.cluster.k = static_cast<uint32_t>(parts);
  launch.ctas = 2 * launch.cluster.k;
  launch.workers.watch = signals.watch(5'000'000'000ull);
  const size_t bytes = 2ul * c.m * c.k;
  const Memory good(bytes);
  CHECK(cudaMemcpy(good.data, s.a.data, bytes, cudaMemcpyDeviceToDevice));
  CHECK(cudaMemset(s.a.data, 0xff, bytes));
  const Streams streams;
  add_to<<<1, 1>>>(signals.at(0), 0);  // load it now: loading waits for running kernels
  CHECK(cudaDeviceSynchronize());
  launch_gemm_tiles(s.kind(), launch, streams[0]);
  for (size_t i = 0; i < kCuts; ++i) {
    usleep(3000);
    CHECK(cudaMemcpy2DAsync(s.a.as<char>() + 2 * i * cut, 2ul * c.k, good.as<char>() + 2 * i * cut, 2ul * c.k, 2 * cut,
                            c.m, cudaMemcpyDeviceToDevice, streams[1]));
    add_to<<<1, 1, 0, streams[1]>>>(signals.at(0), 1);
  }
  CHECK(cudaDeviceSynchronize());
  const double error = s.error(s.out.data);
  const bool ok = error < s.tolerance() && signals.value(1) == tiles && signals.failure->written == 0;
  report("waits by columns, " + name_of(c, parts), ok, error);
}

/// Each tile waits for the one before, on one cluster: no result may be deferred while the next tile waits.
void tiles_in_a_chain(TileShape shape, int parts) {
  const Case c{.m = 512, .n = 512, .k = 1600, .shape = shape};
  const Setup s(c);
  const Signals signals;
  HostTable host = plain_table(s.product());
  signals.attach(host, 0, 0);
  host.waits.clear();
  host.posts[0].signal = signals.at(0);
  const size_t tiles = host.tiles.size();
  for (size_t i = 0; i < tiles; ++i) {
    host.tiles[i].first_wait = static_cast<uint32_t>(i);
    host.tiles[i].flags |= kBStands;
    host.waits.push_back({signals.at(0), i, 0});
  }
  split_k_in_cluster(host, parts);
  const DeviceTable table = upload(host);
  GemmLaunch launch = s.launch(table);
  launch.cluster.k = static_cast<uint32_t>(parts);
  launch.ctas = launch.cluster.k;
  launch.workers.watch = signals.watch(2'000'000'000ull);
  launch_gemm_tiles(s.kind(), launch, nullptr);
  CHECK(cudaDeviceSynchronize());
  const double error = s.error(s.out.data);
  const bool ok = error < s.tolerance() && signals.failure->written == 0 && signals.value(0) == tiles;
  report("tiles in a chain, " + name_of(c, parts), ok, error);
}

/// No post comes for the last part's wait: the kernel leaves in time, reports it, and posts nothing.
void waits_time_out(int parts) {
  const Case c{.m = 256, .n = 512, .k = 2048, .shape = {128, 128}};
  const Setup s(c);
  const Signals signals;
  HostTable host = plain_table(s.product());
  signals.attach(host, 7, 9);
  host.waits[0].step = static_cast<uint32_t>(c.k / kTileK - 1);
  split_k_in_cluster(host, parts);
  const DeviceTable table = upload(host);
  GemmLaunch launch = s.launch(table);
  launch.cluster.k = static_cast<uint32_t>(parts);
  launch.workers.watch = signals.watch(50'000'000);
  launch_gemm_tiles(s.kind(), launch, nullptr);
  CHECK(cudaDeviceSynchronize());
  const WaitFailure& f = *signals.failure;
  report("timeout leaves the kernel, " + name_of(c, parts), f.written == 1 && f.wanted == 7 && signals.value(1) == 0,
         static_cast<double>(f.seen));
}

/// Unsupported launches are refused.
void refusals() {
  const auto refused = [](const Case& c, uint32_t parts, ClusterShape cluster) {
    const Setup s(c);
    HostTable host = plain_table(s.product());
    split_k_in_cluster(host, static_cast<int>(parts));
    const DeviceTable table = upload(host);
    GemmLaunch launch = s.launch(table);
    launch.cluster = cluster;
    launch.cluster.k = parts;
    try {
      launch_gemm_tiles(s.kind(), launch, nullptr);
    } catch (const tilewire::Error& error) {
      return std::string(error.what()).find("parts of K") != std::string::npos;
    }
    return false;
  };
  const Case c{.m = 256, .n = 512, .k = 4096, .shape = {128, 128}};
  Case large = c;
  large.shape = {128, 256};
  report("large tiles are refused", refused(large, 2, kAlone), 0);
  report("too many parts are refused", refused(c, 16, kAlone), 0);
  report("shared operands are refused", refused(c, 2, kPairsM), 0);
}

void all_tests(bool small) {
  for (const TileShape& shape : all_shapes()) {
    if (!may_split_k_in_cluster(shape) || (small && shape.n != 128)) continue;
    const int least = least_part_steps(shape) * kTileK;
    for (const int parts : {2, 3, 4, 5, 6, 7, 8}) {
      if (small && parts != 3) continue;
      product({.m = 300, .n = 456, .k = parts * least + 8, .shape = shape}, parts);
      if (small) continue;
      for (const StoreVia via : {StoreVia::tensor_map, StoreVia::pointer, StoreVia::bulk}) {
        for (const bool kn : {false, true}) {
          Case c{.m = 130, .n = 1000, .k = parts * least + 200, .dtype = kn ? DType::fp16 : DType::bf16, .b_is_kn = kn};
          c.shape = shape;
          c.bias = true;
          c.via = via;
          product(c, parts);
          c.out = DType::fp32;
          product(c, parts);
          c.steps = true;
          product(c, parts);
        }
      }
      product({.m = 1000, .n = 3000, .k = parts * least, .shape = shape}, parts);
    }
    for (const int parts : {2, 3}) {
      if (small && parts == 3) continue;
      const Case c{.m = 4 * shape.m - 40, .n = 4 * shape.n - 56, .k = 3 * least + 72, .shape = shape};
      sums(c, parts, 3, 2);
      if (!small) sums(c, parts, most_partials(shape), 0);
      waits_come_by_columns(shape, parts);
      tiles_in_a_chain(shape, parts);
    }
  }
  waits_time_out(2);
  waits_time_out(4);
  refusals();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    all_tests(argc > 1 && !std::strcmp(argv[1], "--small"));
  } catch (const std::exception& e) {
    std::printf("FAIL exception: %s\n", e.what());
    return 1;
  }
  std::printf("%d failures\n", failures);
  return failures != 0;
}
