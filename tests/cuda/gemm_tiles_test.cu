// The GEMM kernel alone on one GPU: dtypes, layouts, tile shapes, ragged sizes, waits, posts, destinations, split-K.
// A stand-alone program: one line per case, exit status 1 if any fails. `--small` = few cases, for compute-sanitizer.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "gemm_case.cuh"
#include "tilewire/error.hpp"

namespace {

std::string name_of(ClusterShape cluster) {
  return "clusters of " + std::to_string(cluster.m) + " x " + std::to_string(cluster.n);
}

void split_k(HostTable& table, const Case& c) {
  std::vector<TileRecord> tiles;
  const int steps = (c.k + kTileK - 1) / kTileK;
  for (const TileRecord& tile : table.tiles) {
    for (int part = 0; part < c.split; ++part) {
      TileRecord t = tile;
      const int first = steps * part / c.split;
      t.k_begin = first * kTileK;
      t.k_steps = steps * (part + 1) / c.split - first;
      tiles.push_back(t);
    }
  }
  for (WriteRecord& w : table.writes) w.mode = StoreMode::accumulate;
  table.tiles = tiles;
}

__global__ void create_policies(uint64_t* policies) {
  asm volatile("createpolicy.fractional.L2::evict_unchanged.b64 %0, 1.0;" : "=l"(policies[0]));
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policies[1]));
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policies[2]));
}

/// Eviction has the values of the hardware's createpolicy instruction.
void policies_are_the_hardwares() {
  const Memory memory(3 * sizeof(Eviction));
  Eviction made[3];
  create_policies<<<1, 1>>>(static_cast<uint64_t*>(memory.data));
  CHECK(cudaMemcpy(made, memory.data, sizeof(made), cudaMemcpyDeviceToHost));
  report("cache policies", made[0] == Eviction::unchanged && made[1] == Eviction::first && made[2] == Eviction::normal,
         0);
}

void run_case(const Case& c) {
  const Setup s(c);
  HostTable host = plain_table(s.product());
  if (c.split > 1) split_k(host, c);
  const DeviceTable table = upload(host);
  for (int call = 0; call < (c.split > 1 ? 1 : 2); ++call) launch_gemm_tiles(s.kind(), s.launch(table), nullptr);
  CHECK(cudaDeviceSynchronize());
  const double error = s.error(s.out.data);
  report(c.name(), error < s.tolerance(), error);
}

/// A second stream posts later, in two calls with epochs 0 and 1; its earlier writes must be visible.
void waits_are_satisfied(ClusterShape cluster, StoreVia via, TileShape shape = {128, 256}) {
  // With few rows and long loads, fewer steps are in flight than were loaded while the tile waited.
  const bool few = shape.m == 64;
  Case c{.m = 384, .n = 512, .k = few ? 2048 : 128, .shape = shape, .cluster = cluster, .via = via};
  const Setup s(c);
  const Signals signals;
  HostTable host = plain_table(s.product());
  signals.attach(host, 5, 5);
  if (few) std::ranges::for_each(host.tiles, [](TileRecord& tile) { tile.flags |= kBStands; });
  const DeviceTable table = upload(host);
  GemmLaunch launch = s.launch(table);
  launch.workers.counters = reinterpret_cast<CallCounters*>(signals.at(2));  // the kernel counts its calls
  launch.workers.watch = signals.watch(5'000'000'000ull);
  if (few) launch.depth = 5;
  const Memory good(2ul * c.m * c.k);
  CHECK(cudaMemcpy(good.data, s.a.data, 2ul * c.m * c.k, cudaMemcpyDeviceToDevice));
  const Streams streams;
  add_to<<<1, 1>>>(signals.at(0), 0);  // load it now: loading waits for running kernels
  double error = 0;
  for (int call = 0; call < 2; ++call) {
    CHECK(cudaMemset(s.a.data, 0xff, 2ul * c.m * c.k));
    launch_gemm_tiles(s.kind(), launch, streams[0]);
    usleep(20000);
    CHECK(cudaMemcpyAsync(s.a.data, good.data, 2ul * c.m * c.k, cudaMemcpyDeviceToDevice, streams[1]));
    add_to<<<1, 1, 0, streams[1]>>>(signals.at(0), 5);
    CHECK(cudaDeviceSynchronize());
    const double now = s.error(s.out.data);
    if (!(now <= error)) error = now;
  }
  const bool ok = error < s.tolerance() && signals.value(1) == 2 * host.tiles.size() && signals.failure->written == 0;
  report("waits satisfied later, " + c.name(), ok, error);
}

/// A's columns arrive in three chunks, and each wait is for one of them.
void waits_come_by_columns(ClusterShape cluster) {
  constexpr int kCuts = 3;
  Case c{.m = 384, .n = 1024, .k = 768, .shape = {128, 256}, .cluster = cluster};
  const Setup s(c);
  const Signals signals;
  HostTable host = plain_table(s.product());
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
  const DeviceTable table = upload(host);
  GemmLaunch launch = s.launch(table);
  launch.ctas = std::max(2U, cluster_ctas(cluster));
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
  const bool ok = error < s.tolerance() && signals.value(1) == host.tiles.size() && signals.failure->written == 0;
  report("waits by columns, " + c.name(), ok, error);
}

/// Each tile (or pair) waits for all before it, on one CTA (or pair): no result may be deferred while the next one
/// waits.
void tiles_in_a_chain(ClusterShape cluster) {
  Case c{.m = 512, .n = 1024, .k = 256, .shape = {128, 256}, .cluster = cluster};
  const Setup s(c);
  const Signals signals;
  HostTable host = plain_table(s.product());
  signals.attach(host, 0, 0);
  host.waits.clear();
  host.posts[0].signal = signals.at(0);
  for (size_t i = 0; i < host.tiles.size(); ++i) {
    host.tiles[i].first_wait = static_cast<uint32_t>(i);
    host.tiles[i].flags |= kBStands;  // all of its few steps are loaded early
    host.waits.push_back({signals.at(0), i - i % cluster_ctas(cluster), 0});
  }
  const DeviceTable table = upload(host);
  GemmLaunch launch = s.launch(table);
  launch.ctas = cluster_ctas(cluster);
  launch.workers.watch = signals.watch(2'000'000'000ull);
  launch_gemm_tiles(s.kind(), launch, nullptr);
  CHECK(cudaDeviceSynchronize());
  const double error = s.error(s.out.data);
  const bool ok = error < s.tolerance() && signals.failure->written == 0 && signals.value(0) == host.tiles.size();
  report("tiles in a chain, " + name_of(cluster), ok, error);
}

/// No post comes: the kernel leaves in time, reports its wait, and neither posts nor stores.
void waits_time_out(ClusterShape cluster) {
  Case c{.m = 1024, .n = 1024, .k = 256, .shape = {128, 256}, .cluster = cluster};
  const Setup s(c);
  const Signals signals;
  HostTable host = plain_table(s.product());
  signals.attach(host, 7, 9);
  const DeviceTable table = upload(host);
  GemmLaunch launch = s.launch(table);
  launch.workers.watch = signals.watch(50'000'000);
  add_to<<<1, 1>>>(signals.at(0), 3);
  launch_gemm_tiles(s.kind(), launch, nullptr);
  CHECK(cudaDeviceSynchronize());
  const WaitFailure& f = *signals.failure;
  std::vector<uint16_t> out(static_cast<size_t>(c.m) * c.n);
  CHECK(cudaMemcpy(out.data(), s.out.data, 2 * out.size(), cudaMemcpyDeviceToHost));
  bool untouched = true;
  for (const uint16_t v : out) untouched = untouched && v == 0xffff;
  const bool ok = f.written == 1 && f.wanted == 7 && f.seen == 3 && signals.value(1) == 0 && untouched;
  report("timeout leaves the kernel, " + name_of(cluster), ok, static_cast<double>(f.seen));
}

/// Tiles complete a sum after their own steps if every CTA has one tile, and during the next tile if one CTA has all:
/// the same bits. The other partials arrive while the kernel runs.
void sums(const Case& c, int parts, int own) {
  const Setup s(c);
  const OtherPartials others(s, parts);
  const Signals signals;
  HostTable host = plain_table(s.product());
  others.attach(host, own, signals);
  const DeviceTable table = upload(host);
  GemmLaunch launch = s.launch(table);
  launch.workers.watch = signals.watch(5'000'000'000ull);
  const Streams streams;
  add_to<<<1, 1>>>(signals.at(0), 0);  // load it now: loading waits for running kernels
  std::vector<std::vector<uint8_t>> results;
  double error = 0;
  for (int few = 0; few < 2; ++few) {
    CHECK(cudaMemset(s.out.data, 0xff, s.out_bytes()));
    CHECK(cudaMemset(signals.at(0), 0, 8));
    CHECK(cudaDeviceSynchronize());
    launch.ctas = few == 1 ? cluster_ctas(c.cluster) : static_cast<uint32_t>(host.tiles.size());
    launch_gemm_tiles(s.kind(true), launch, streams[0]);
    usleep(2000);
    add_to<<<1, 1, 0, streams[1]>>>(signals.at(0), 1);
    CHECK(cudaDeviceSynchronize());
    error = std::max(error, s.error(s.out.data));
    results.push_back(s.bytes_of_result(s.out.data));
  }
  const bool ok = error < s.rounding() && results[0] == results[1] && signals.failure->written == 0 &&
                  signals.value(1) == 2 * host.tiles.size();
  report("sums with " + std::to_string(parts) + " parts, own at " + std::to_string(own) + ", " + c.name(), ok, error);
}

void all_sums(bool small) {
  for (const TileShape& shape : all_shapes()) {
    if (!holds_results(shape) || (small && shape.n != 256 && shape.m != 104 && shape.m != 152)) continue;
    const ClusterShape cluster = shape.m == 64 ? kAlone : shape.m > shape.n ? kPairsN : kPairsM;
    Case c{.m = 4 * shape.m - 40, .n = 4 * shape.n - 56, .k = 1000, .shape = shape, .cluster = cluster};
    sums(c, 3, 2);
    if (small) continue;
    Case other{.m = c.m, .n = c.n, .k = c.k, .dtype = DType::fp16, .b_is_kn = true, .shape = shape};
    c.k = kTileK * 2 * chunks_across(shape.n) * std::max(1, shape.m / 128);  // the last chunk comes with the last step
    for (const int parts : {1, 2, 3}) sums(c, parts, 1);
    c.via = StoreVia::bulk, sums(c, 2, 2);
    for (const int parts : {1, 2, std::min(7, most_partials(shape) - 1), most_partials(shape)}) {
      for (const int own : {0, parts}) sums(other, parts, own);
    }
    sums(other, 0, 0);  // the same body, for tiles that are no sums
    other.k = 72;       // fewer steps than chunks
    sums(other, 3, 1);
    other.bias = true;
    sums(other, 3, 1);
    other.out = DType::fp32;
    sums(other, 2, 0);
  }
}

/// Every number of rows, as each has its own code; tiles that end inside boxes of 64 rows, and of 8.
std::vector<Case> cases_of_runtime_rows() {
  std::vector<Case> cases;
  for (int rows = kFewestRows; rows <= 248; rows += 8) {
    const TileShape shape{rows, 128};
    if (!has_runtime_rows(shape)) continue;
    for (const DType dtype : {DType::bf16, DType::fp16}) {
      cases.push_back({.m = 3 * rows - 3, .n = 1024, .k = 640, .dtype = dtype, .shape = shape});
      cases.push_back({.m = 2 * rows, .n = 1024, .k = 640, .dtype = dtype, .b_is_kn = true, .shape = shape});
    }
    for (const int m : {rows, 3 * rows, 3 * rows + 1, 4 * rows - 9}) {
      Case c{.m = m, .n = 264, .k = 136, .shape = shape};
      cases.push_back(c);
      c.out = DType::fp32;
      c.b_is_kn = c.bias = true;
      cases.push_back(c);
      c.steps = true;
      cases.push_back(c);
      c.out = DType::bf16;
      cases.push_back(c);
    }
    cases.push_back({.m = 2 * rows + 8, .n = 1000, .k = 1000, .out = DType::fp32, .shape = shape, .split = 3});
  }
  return cases;
}

std::vector<Case> all_cases(bool small) {
  std::vector<Case> cases;
  for (const TileShape& shape : all_shapes()) {
    const ClusterShape cluster = shape.m > shape.n ? kPairsN : kPairsM;
    for (const DType dtype : {DType::bf16, DType::fp16}) {
      if (small && (dtype == DType::fp16 || shape.n == 192)) continue;
      if (dtype == DType::fp16 && has_runtime_rows(shape) && shape.m % 16 == 0) continue;
      for (const bool kn : {false, true}) {
        cases.push_back({.m = 300, .n = 456, .k = 328, .dtype = dtype, .b_is_kn = kn, .shape = shape});
        if (small) continue;
        for (const StoreVia via : {StoreVia::tensor_map, StoreVia::pointer, StoreVia::bulk}) {
          for (const DType out : {DType::bf16, DType::fp32}) {
            Case c{.m = 777, .n = 1336, .k = 200, .dtype = dtype, .out = out, .b_is_kn = kn, .shape = shape};
            c.bias = true;
            c.cluster = cluster;
            c.via = via;
            cases.push_back(c);
            c.steps = via != StoreVia::pointer;
            if (c.steps) cases.push_back(c);
            c.cluster = kAlone;
            c.counter = true;
            c.m = 2048;
            cases.push_back(c);
          }
        }
      }
    }
    if (small) continue;
    cases.push_back({.m = 1, .n = 8, .k = 8, .shape = shape});
    cases.push_back({.m = 5000, .n = 3000, .k = 64, .shape = shape, .cluster = cluster});
    for (const ClusterShape several : {ClusterShape{2, 2}, {1, 4}, {4, 1}, {3, 1}, {1, 3}, {3, 2}, {2, 4}}) {
      Case c{.m = 1500, .n = 2000, .k = 1000, .shape = shape, .cluster = several};
      cases.push_back(c);
      c.b_is_kn = true;
      cases.push_back(c);
    }
    if (!chunks_overlap(shape)) {
      cases.push_back({.m = 130, .n = 1000, .k = 1000, .out = DType::fp32, .shape = shape, .split = 3});
    }
    for (const StoreVia via : {StoreVia::pointer, StoreVia::bulk}) {
      cases.push_back({.m = 130, .n = 1000, .k = 1000, .out = DType::fp32, .shape = shape, .via = via, .split = 4});
    }
  }
  if (small) return cases;
  cases.push_back({.m = 4096, .n = 4096, .k = 2048, .shape = {128, 256}, .cluster = kPairsM});
  const std::vector<Case> free = cases_of_runtime_rows();
  cases.insert(cases.end(), free.begin(), free.end());
  return cases;
}

}  // namespace

int main(int argc, char** argv) {
  const bool small = argc > 1 && !std::strcmp(argv[1], "--small");
  try {
    policies_are_the_hardwares();
    for (const Case& c : all_cases(small)) run_case(c);
    waits_are_satisfied(kAlone, StoreVia::tensor_map);
    waits_are_satisfied(kPairsM, StoreVia::pointer);
    waits_are_satisfied(kAlone, StoreVia::tensor_map, {64, 128});
    waits_are_satisfied(kPairsM, StoreVia::tensor_map, {64, 128});
    for (const ClusterShape cluster : {kAlone, kPairsN, kPairsM, {1, 4}}) waits_come_by_columns(cluster);
    all_sums(small);
    tiles_in_a_chain(kAlone);
    tiles_in_a_chain(kPairsM);
    tiles_in_a_chain({2, 2});
    waits_time_out(kAlone);
    waits_time_out(kPairsM);
    waits_time_out({1, 4});
  } catch (const std::exception& e) {
    std::printf("FAIL exception: %s\n", e.what());
    return 1;
  }
  std::printf("%d failures\n", failures);
  return failures != 0;
}
