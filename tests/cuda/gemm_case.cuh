// One product of the GEMM kernel's test: random inputs, poisoned output, reference in double, error.
// Included by gemm_tiles_test.cu, gemm_cluster_split_k_test.cu and gemm_places_test.cu.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "backends/cuda/tables/gemm_table.hpp"
#include "cuda/gemm_reference.cuh"

using namespace tilewire;
using namespace tilewire::cuda;

#define CHECK(call)                                                                           \
  do {                                                                                        \
    if (const auto status_ = (call); status_ != cudaSuccess) {                                \
      std::printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status_)); \
      std::exit(1);                                                                           \
    }                                                                                         \
  } while (0)

namespace {

__global__ void add_to(uint64_t* signal, uint64_t value) {
  atomicAdd_system(reinterpret_cast<unsigned long long*>(signal), value);
}

struct Memory {
  void* data = nullptr;
  explicit Memory(size_t bytes) { CHECK(cudaMalloc(&data, bytes + 16)); }
  ~Memory() { cudaFree(data); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

/// Two streams that do not synchronise with the legacy default stream.
struct Streams {
  cudaStream_t all[2]{};
  Streams() {
    for (cudaStream_t& stream : all) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  ~Streams() {
    for (cudaStream_t stream : all) cudaStreamDestroy(stream);
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  cudaStream_t operator[](int i) const { return all[i]; }
};

constexpr ClusterShape kAlone{};
constexpr ClusterShape kPairsM{.m = 2};  // CTAs that share columns of B
constexpr ClusterShape kPairsN{.n = 2};  // and rows of A

/// All shapes, and after them some with runtime rows.
inline std::vector<TileShape> all_shapes() {
  std::vector<TileShape> shapes{{72, 128},  {104, 128}, {120, 128}, {136, 128},
                                {152, 128}, {176, 128}, {192, 128}, {248, 128}};
  shapes.insert(shapes.begin(), kTileShapes.begin(), kTileShapes.end());
  return shapes;
}

struct Case {
  int m = 256;
  int n = 256;
  int k = 256;
  DType dtype = DType::bf16;
  DType out = DType::bf16;
  bool b_is_kn = false;
  bool bias = false;
  bool steps = false;  // GELU, a factor, and a residual, too
  TileShape shape{};
  ClusterShape cluster{};
  StoreVia via = StoreVia::tensor_map;
  bool counter = false;
  int split = 1;  // parts of K, accumulated into C

  std::string name() const {
    static const char* const kVia[] = {"pointer", "tensor", "bulk"};
    char text[200];
    std::snprintf(text, sizeof text, "%dx%dx%d %s->%s B[%s]%s%s tile %dx%d cluster %ux%u %s%s split %d", m, n, k,
                  dtype == DType::bf16 ? "bf16" : "fp16", out == DType::fp32 ? "fp32" : "same", b_is_kn ? "K,N" : "N,K",
                  bias ? " bias" : "", steps ? " steps" : "", shape.m, shape.n, cluster.m, cluster.n,
                  kVia[static_cast<int>(via)], counter ? " counter" : "", split);
    return text;
  }
};

/// Inputs, poisoned output and expected result of a case.
struct Setup {
  Case c;
  Memory a, b, bias, residual, out, expected, counter;

  explicit Setup(const Case& k)
      : c(k),
        a(2ul * k.m * k.k),
        b(2ul * k.n * k.k),
        bias(2ul * k.n),
        residual(2ul * k.m * k.n),
        out(4ul * k.m * k.n),
        expected(8ul * k.m * k.n),
        counter(8) {
    static unsigned seed = 1;
    CHECK(cudaMemset(out.data, k.split > 1 ? 0 : 0xff, 4ul * k.m * k.n));
    CHECK(cudaMemset(counter.data, 0, 8));
    load_gemm_tiles(kind());
    k.dtype == DType::bf16 ? make<__nv_bfloat16>(seed) : make<__half>(seed);
    seed += 4;
    CHECK(cudaDeviceSynchronize());
  }

  template <typename T>
  void make(unsigned seed) {
    fill<<<256, 256>>>(a.as<T>(), static_cast<size_t>(c.m) * c.k, seed);
    fill<<<256, 256>>>(b.as<T>(), static_cast<size_t>(c.n) * c.k, seed + 1);
    fill<<<256, 256>>>(bias.as<T>(), static_cast<size_t>(c.n), seed + 2);
    if (c.steps) fill<<<256, 256>>>(residual.as<T>(), static_cast<size_t>(c.m) * c.n, seed + 3);
    expect<T>(0, c.k);
  }
  template <typename T>
  void expect(int k_begin, int k_end) {
    reference<<<dim3((c.n + 127) / 128, c.m), 128>>>(a.as<T>(), b.as<T>(), c.bias ? bias.as<T>() : nullptr,
                                                     c.steps ? residual.as<T>() : nullptr, expected.as<double>(), c.m,
                                                     c.n, c.k, k_begin, k_end, c.b_is_kn);
  }

  PlainProduct product() const {
    PlainProduct p;
    p.a = {a.data, c.dtype, c.m, c.k, c.k};
    p.b = c.b_is_kn ? MatrixView{b.data, c.dtype, c.k, c.n, c.n} : MatrixView{b.data, c.dtype, c.n, c.k, c.k};
    p.c = {out.data, c.out == DType::fp32 ? DType::fp32 : c.dtype, c.m, c.n, c.n};
    p.b_is_kn = c.b_is_kn;
    if (c.bias) p.epilogue = {{.dtype = c.dtype, .operand = bias.as<std::byte>()}};
    if (c.steps) {
      p.epilogue.push_back({.kind = EpilogueKind::gelu});
      p.epilogue.push_back({.kind = EpilogueKind::scale, .value = 0.5F});
      p.epilogue.push_back(
          {.kind = EpilogueKind::residual, .dtype = c.dtype, .operand = residual.as<std::byte>(), .ld = c.n});
    }
    p.shape = c.shape;
    p.cluster = c.cluster;
    p.group_m = 3;
    p.via = c.via;
    return p;
  }
  GemmBodyKind kind(bool sums = false) const { return {c.dtype, c.b_is_kn, c.shape, sums, c.steps}; }
  size_t out_bytes() const { return static_cast<size_t>(c.m) * c.n * (c.out == DType::fp32 ? 4 : 2); }
  /// The bytes of a result, in C's layout.
  std::vector<uint8_t> bytes_of_result(const void* result) const {
    std::vector<uint8_t> bytes(out_bytes());
    CHECK(cudaMemcpy(bytes.data(), result, bytes.size(), cudaMemcpyDeviceToHost));
    return bytes;
  }
  GemmLaunch launch(const DeviceTable& table) const {
    return {.counter = c.counter ? counter.as<uint32_t>() : nullptr, .cluster = c.cluster, .table = table.table};
  }

  /// |out - expected| / |expected| of `result`, in C's layout.
  double error(const void* result) const {
    const size_t count = static_cast<size_t>(c.m) * c.n;
    std::vector<double> want(count);
    CHECK(cudaMemcpy(want.data(), expected.data, 8 * count, cudaMemcpyDeviceToHost));
    const std::vector<uint8_t> raw = bytes_of_result(result);
    double d = 0;
    double s = 0;
    for (size_t i = 0; i < count; ++i) {
      float v = 0;
      if (c.out == DType::fp32) {
        v = reinterpret_cast<const float*>(raw.data())[i];
      } else if (c.dtype == DType::bf16) {
        v = __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(raw.data())[i]);
      } else {
        v = __half2float(reinterpret_cast<const __half*>(raw.data())[i]);
      }
      d += (v - want[i]) * (v - want[i]);
      s += want[i] * want[i];
    }
    return std::sqrt(d / s);
  }
  double tolerance() const { return c.out == DType::fp32 ? 1e-5 : rounding(); }
  /// The same for a sum, whose partials were rounded.
  double rounding() const { return c.dtype == DType::bf16 ? 4e-3 : 6e-4; }
};

int failures = 0;

/// A line for each case that ran.
void report(const std::string& name, bool ok, double value) {
  std::printf("%-4s %s (%.1e)\n", ok ? "ok" : "FAIL", name.c_str(), value);
  std::fflush(stdout);
  if (!ok) ++failures;
}

/// Signals, and the failure report of a waiting kernel.
struct Signals {
  Memory memory{256};  // ready, done, calls, begun, abort
  WaitFailure* failure = nullptr;
  WaitFailure* device_failure = nullptr;

  Signals() {
    CHECK(cudaMemset(memory.data, 0, 256));
    CHECK(cudaHostAlloc(&failure, sizeof(WaitFailure), cudaHostAllocMapped));
    *failure = {};
    CHECK(cudaHostGetDevicePointer(&device_failure, failure, 0));
  }
  ~Signals() { cudaFreeHost(failure); }
  uint64_t* at(int i) const { return memory.as<uint64_t>() + i; }
  uint64_t value(int i) const {
    uint64_t v = 0;
    CHECK(cudaMemcpy(&v, at(i), 8, cudaMemcpyDeviceToHost));
    return v;
  }
  WaitWatch watch(uint64_t timeout_ns) const {
    return {.timeout_ns = timeout_ns, .abort = reinterpret_cast<uint32_t*>(at(4)), .failure = device_failure};
  }

  /// All tiles wait for signal 0 and post to signal 1.
  void attach(HostTable& table, uint64_t at_least, uint64_t total) const {
    table.waits.push_back({at(0), at_least, total});
    table.posts.push_back({at(1), 1, true});
    for (TileRecord& tile : table.tiles) tile.num_waits = tile.num_posts = 1;
  }
};

/// Other partials of a product: matrices like C.
struct OtherPartials {
  const Setup& s;
  int count;
  size_t bytes = 2ul * s.c.m * s.c.n;
  Memory memory{bytes * count};

  OtherPartials(const Setup& setup, int how_many) : s(setup), count(how_many) {
    const size_t elements = static_cast<size_t>(s.c.m) * s.c.n;
    for (int i = 0; i < count; ++i) {
      if (s.c.dtype == DType::bf16) {
        fill<<<256, 256>>>(at<__nv_bfloat16>(i), elements, 77u + i);
        add_matrix<<<256, 256>>>(s.expected.as<double>(), at<__nv_bfloat16>(i), elements);
      } else {
        fill<<<256, 256>>>(at<__half>(i), elements, 77u + i);
        add_matrix<<<256, 256>>>(s.expected.as<double>(), at<__half>(i), elements);
      }
    }
    CHECK(cudaDeviceSynchronize());
  }
  template <typename T>
  T* at(int i) const {
    return reinterpret_cast<T*>(memory.as<char>() + i * bytes);
  }

  /// Every tile adds them when signal 0 is 1, with its own partial at place `own`, and posts to signal 1.
  void attach(HostTable& table, int own, const Signals& signals) const {
    const auto first_map = static_cast<uint32_t>(table.maps.size());
    for (int i = 0; i < count; ++i) {
      table.maps.push_back(make_output_map({at<char>(i), s.c.dtype, s.c.m, s.c.n, s.c.n}));
    }
    table.waits.push_back({signals.at(0), 1, 0});
    table.posts.push_back({signals.at(1), 1, true});
    for (TileRecord& tile : table.tiles) {
      tile.first_partial = static_cast<uint32_t>(table.parts.size());
      for (int i = 0; i < count; ++i) table.parts.push_back({tile.a_row, tile.b_col, first_map + i, 0});
      tile.num_partials = static_cast<uint8_t>(count);
      tile.own_partial = static_cast<uint8_t>(own);
      tile.num_partial_waits = tile.num_posts = 1;
    }
  }
};

}  // namespace
