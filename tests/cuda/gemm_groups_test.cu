// The GEMM kernel on groups of rows, on one GPU: numbers of rows from none to many, types, activations, shapes; waits
// for extents; posts. A stand-alone program: one line per case, exit status 1 if any fails. `--small` = few cases.
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/ceil_div.hpp"
#include "gemm_case.cuh"

namespace {

struct GroupCase {
  std::vector<int> rows{};  // of each group
  int n = 256;              // lines of B of each group
  int k = 128;
  DType dtype = DType::bf16;
  Activation activation = Activation::none;
  TileShape shape = kWideGroups;
  bool b_is_kn = false;

  [[nodiscard]] int cols() const { return is_gated(activation) ? n / 2 : n; }
  [[nodiscard]] std::string name() const {
    static const char* const kNames[] = {"none", "relu", "gelu", "silu", "swiglu", "swiglu_pairs"};
    const int all = std::accumulate(rows.begin(), rows.end(), 0);
    char text[200];
    std::snprintf(text, sizeof text, "%zu groups of %d rows x %d x %d %s %s %s tile %dx%d", rows.size(), all, n, k,
                  dtype == DType::bf16 ? "bf16" : "fp16", b_is_kn ? "kn" : "nk", kNames[static_cast<int>(activation)],
                  shape.m, shape.n);
    return text;
  }
};

__device__ double activated(Activation activation, double x, double up) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return x < 0 ? 0 : x;
    case Activation::gelu:
      return x * 0.5 * (1 + erf(x / sqrt(2.0)));
    case Activation::silu:
      return x / (1 + exp(-x));
    case Activation::swiglu:
    case Activation::swiglu_pairs:
      return x / (1 + exp(-x)) * up;
  }
  return x;
}

/// The results of all rows, in double. group_of[row] < 0: the row is of no group.
template <typename T>
__global__ void reference_of_groups(const T* a, const T* b, const int* group_of, double* c, int n, int k, int cols,
                                    Activation activation, bool b_is_kn) {
  const int col = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y;
  const int group = group_of[row];
  if (col >= cols || group < 0) return;
  const auto dot = [&](int line) {
    double sum = 0;
    const T* own = b + static_cast<size_t>(group) * n * k;
    for (int i = 0; i < k; ++i)
      sum +=
          static_cast<double>(static_cast<float>(a[static_cast<size_t>(row) * k + i])) *
          static_cast<float>(b_is_kn ? own[static_cast<size_t>(i) * n + line] : own[static_cast<size_t>(line) * k + i]);
    return sum;
  };
  const bool pairs = activation == Activation::swiglu_pairs;
  const bool gated = pairs || activation == Activation::swiglu;
  const double up = gated ? dot(pairs ? 2 * col + 1 : cols + col) : 0;
  c[static_cast<size_t>(row) * cols + col] = activated(activation, dot(pairs ? 2 * col : col), up);
}

/// Inputs, extents, poisoned output and expected result of a case.
struct GroupSetup {
  GroupCase c;
  int all_rows = 0;
  std::vector<int> extents{};
  std::vector<int> group_of{};
  Memory a, b, out, expected, groups, places, ended;

  explicit GroupSetup(const GroupCase& g)
      : c(g),
        all_rows(rows_of(g)),
        a(2ul * all_rows * g.k),
        b(2ul * g.rows.size() * g.n * g.k),
        out(2ul * all_rows * g.cols()),
        expected(8ul * all_rows * g.cols()),
        groups(4ul * all_rows),
        places(8ul * g.rows.size()),
        ended(4) {
    static unsigned seed = 100;
    extents.resize(2 * g.rows.size());
    group_of.assign(static_cast<size_t>(all_rows), -1);
    int next = 0;
    for (size_t i = 0; i < g.rows.size(); ++i) {
      extents[i] = next;
      extents[g.rows.size() + i] = next + g.rows[i];
      std::fill_n(group_of.begin() + next, g.rows[i], static_cast<int>(i));
      next = static_cast<int>(ceil_div(next + g.rows[i], 8) * 8);
    }
    CHECK(cudaMemset(out.data, 0xff, 2ul * all_rows * g.cols()));
    CHECK(cudaMemset(ended.data, 0, 4));
    CHECK(cudaMemcpy(groups.data, group_of.data(), 4ul * all_rows, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(places.data, extents.data(), 4 * extents.size(), cudaMemcpyHostToDevice));
    load_gemm_tiles(kind());
    g.dtype == DType::bf16 ? make<__nv_bfloat16>(seed) : make<__half>(seed);
    seed += 2;
    CHECK(cudaDeviceSynchronize());
  }

  /// Rows of memory: groups begin at multiples of 8. More rows follow, which nothing may touch.
  static int rows_of(const GroupCase& g) {
    int64_t next = 0;
    for (const int rows : g.rows) next = ceil_div(next + rows, 8) * 8;
    return static_cast<int>(next) + 24;
  }

  template <typename T>
  void make(unsigned seed) {
    fill<<<256, 256>>>(a.as<T>(), static_cast<size_t>(all_rows) * c.k, seed);
    fill<<<256, 256>>>(b.as<T>(), c.rows.size() * c.n * c.k, seed + 1);
    reference_of_groups<<<dim3((c.cols() + 127) / 128, all_rows), 128>>>(
        a.as<T>(), b.as<T>(), groups.as<int>(), expected.as<double>(), c.n, c.k, c.cols(), c.activation, c.b_is_kn);
  }

  [[nodiscard]] GroupedProduct product() const {
    const auto count = static_cast<int64_t>(c.rows.size());
    return {.a = {a.data, c.dtype, all_rows, c.k, c.k},
            .b = c.b_is_kn ? MatrixView{b.data, c.dtype, count * c.k, c.n, c.n}
                           : MatrixView{b.data, c.dtype, count * c.n, c.k, c.k},
            .c = {out.data, c.dtype, all_rows, c.cols(), c.cols()},
            .b_is_kn = c.b_is_kn,
            .groups = count,
            .extents = places.as<int>(),
            .activation = c.activation,
            .shape = c.shape,
            .ended = ended.as<uint32_t>()};
  }
  [[nodiscard]] GemmBodyKind kind() const { return kind_of(product()); }
  [[nodiscard]] HostTable table() const { return grouped_table(product()); }

  /// The error of the rows of groups; infinite if another row has changed. The 8 rows in which a group ends may.
  [[nodiscard]] double error() const {
    const size_t count = static_cast<size_t>(all_rows) * c.cols();
    std::vector<uint16_t> got(count);
    std::vector<double> want(count);
    CHECK(cudaMemcpy(got.data(), out.data, 2 * count, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(want.data(), expected.data, 8 * count, cudaMemcpyDeviceToHost));
    double d = 0;
    double s = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t row = i / c.cols();
      if (group_of[row] < 0) {
        if (group_of[row / 8 * 8] < 0 && got[i] != 0xffff) return INFINITY;
        continue;
      }
      float v = 0;
      if (c.dtype == DType::bf16) {
        v = __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(got.data())[i]);
      } else {
        v = __half2float(reinterpret_cast<const __half*>(got.data())[i]);
      }
      d += (v - want[i]) * (v - want[i]);
      s += want[i] * want[i];
    }
    return d == 0 ? 0 : std::sqrt(d / s);
  }
  [[nodiscard]] double tolerance() const { return c.dtype == DType::bf16 ? 4e-3 : 6e-4; }
};

void run_case(const GroupCase& c) {
  const GroupSetup s(c);
  const DeviceTable table = upload(s.table());
  for (int call = 0; call < 2; ++call) launch_groups(s.kind(), {.table = table.table}, nullptr);
  CHECK(cudaDeviceSynchronize());
  const double error = s.error();
  report(c.name(), error < s.tolerance(), error);
}

/// A family waits for its extents, which come late, and posts once in each call, also without rows.
void waits_and_posts(const std::vector<int>& rows) {
  const GroupSetup s({.rows = rows, .n = 384, .k = 192});
  const Signals signals;
  HostTable host = s.table();
  host.waits.push_back({signals.at(0), 5, 5});
  host.posts.push_back({signals.at(1), 1, true});
  host.families[0].num_waits = host.families[0].num_early = host.families[0].num_posts = 1;
  const DeviceTable table = upload(host);
  // NOTE: the kernels that write the extents and post need SMs meanwhile.
  GemmLaunch launch{.ctas = 16, .table = table.table};
  launch.workers.counters = reinterpret_cast<CallCounters*>(signals.at(2));
  launch.workers.watch = signals.watch(5'000'000'000ull);
  const Streams streams;
  add_to<<<1, 1>>>(signals.at(0), 0);  // load it now: loading waits for running kernels
  CHECK(cudaDeviceSynchronize());
  bool good = true;
  for (uint64_t call = 1; call <= 3; ++call) {
    CHECK(cudaMemset(s.places.data, 0, 4 * s.extents.size()));
    CHECK(cudaMemset(s.out.data, 0xff, 2ul * s.all_rows * s.c.cols()));
    CHECK(cudaDeviceSynchronize());
    launch_groups(s.kind(), launch, streams[0]);
    usleep(2000);
    good = good && signals.value(1) == call - 1;
    CHECK(cudaMemcpyAsync(s.places.data, s.extents.data(), 4 * s.extents.size(), cudaMemcpyHostToDevice, streams[1]));
    add_to<<<1, 1, 0, streams[1]>>>(signals.at(0), 5);
    CHECK(cudaDeviceSynchronize());
    good = good && signals.value(1) == call && s.error() < s.tolerance();
  }
  report("waits for extents and posts, " + s.c.name(), good, s.error());
}

/// Extents that never come: the kernel ends, reports the wait, and posts nothing.
void a_missing_signal_is_reported() {
  const GroupSetup s({.rows = {40, 50}});
  const Signals signals;
  HostTable host = s.table();
  host.waits.push_back({signals.at(0), 5, 5});
  host.posts.push_back({signals.at(1), 1, true});
  host.families[0].num_waits = host.families[0].num_early = host.families[0].num_posts = 1;
  const DeviceTable table = upload(host);
  GemmLaunch launch{.table = table.table};
  launch.workers.counters = reinterpret_cast<CallCounters*>(signals.at(2));
  launch.workers.watch = signals.watch(20'000'000ull);
  launch_groups(s.kind(), launch, nullptr);
  CHECK(cudaDeviceSynchronize());
  report("a missing signal is reported",
         signals.failure->written == 1 && signals.failure->wanted == 5 && signals.value(1) == 0,
         static_cast<double>(signals.failure->seen));
}

std::vector<int> random_rows(int groups, int most, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int> rows(groups);
  for (int& count : rows) count = static_cast<int>(random() % (most + 1));
  return rows;
}

}  // namespace

int main(int argc, char** argv) {
  const bool small = argc > 1 && std::strcmp(argv[1], "--small") == 0;
  const std::vector<Activation> activations{Activation::none, Activation::relu,   Activation::gelu,
                                            Activation::silu, Activation::swiglu, Activation::swiglu_pairs};
  try {
    for (const DType dtype : {DType::bf16, DType::fp16}) {
      for (const Activation activation : activations) {
        for (const TileShape shape : {kWideGroups, kNarrowGroups}) {
          if (is_gated(activation) && shape == kNarrowGroups) continue;
          if (small && activation != Activation::none && activation != Activation::swiglu) continue;
          for (const bool b_is_kn : {false, true}) {
            if (b_is_kn && activation == Activation::swiglu_pairs) continue;
            run_case({{1, 0, 8, 127, 128, 129, 300}, 272, 200, dtype, activation, shape, b_is_kn});
          }
        }
      }
    }
    for (const TileShape shape : {kWideGroups, kNarrowGroups}) {
      run_case({.rows = {0, 0, 0}, .shape = shape});
      run_case({.rows = {1}, .n = 8, .k = 8, .shape = shape});
      run_case({.rows = random_rows(70, 40, 1), .n = 144, .k = 72, .shape = shape});
      if (small) continue;
      run_case({.rows = random_rows(33, 500, 2), .n = 1000, .k = 520, .shape = shape});
      run_case({.rows = random_rows(33, 500, 4), .n = 1000, .k = 520, .shape = shape, .b_is_kn = true});
      run_case({.rows = random_rows(128, 90, 3), .n = 512, .k = 1024, .shape = shape});
      for (int rows = 1; rows <= 136; rows += 9) run_case({.rows = {rows, rows + 1}, .n = 320, .shape = shape});
    }
    waits_and_posts({200, 0, 30});
    waits_and_posts({0, 0});
    a_missing_signal_is_reported();
  } catch (const std::exception& e) {
    std::printf("FAIL exception: %s\n", e.what());
    return 1;
  }
  std::printf("%d failures\n", failures);
  return failures != 0;
}
