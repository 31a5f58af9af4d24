// cuBLASLt: its entry points, the choice among its candidates, its calls.
// Called by cuda programs, and by `tilewire info`.
#include "backends/cuda/vendor/cublaslt.hpp"

#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <random>
#include <type_traits>
#include <vector>

#include "backends/cuda/runtime/driver.hpp"
#include "backends/cuda/vendor/vendor_library.hpp"
#include "core/convert.hpp"
#include "core/text.hpp"
#include "tilewire/print.hpp"

namespace tilewire::cuda {
namespace {

constexpr int kMostCandidates = 12;
/// Duration of one measurement; each candidate has two.
constexpr double kBurstUs = 2000;
constexpr int kMostCalls = 20;

/// The library's entry points.
struct LtFunctions {
  std::string missing{};  ///< why they cannot be called; empty = they can
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetStatusString) status_string = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) candidates = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;

  void check(cublasStatus_t status, const char* call) const {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    const bool unsupported = status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
    fail(unsupported ? ErrorKind::unsupported : ErrorKind::internal, "{}: {}", call, status_string(status));
  }
};

LtFunctions look_up_lt(std::span<const char* const> names) {
  LtFunctions all;
  VendorLibrary library("cuBLASLt", names);
  library.find(all.create, "cublasLtCreate");
  library.find(all.destroy, "cublasLtDestroy");
  library.find(all.status_string, "cublasLtGetStatusString");
  library.find(all.desc_create, "cublasLtMatmulDescCreate");
  library.find(all.desc_destroy, "cublasLtMatmulDescDestroy");
  library.find(all.desc_set, "cublasLtMatmulDescSetAttribute");
  library.find(all.layout_create, "cublasLtMatrixLayoutCreate");
  library.find(all.layout_destroy, "cublasLtMatrixLayoutDestroy");
  library.find(all.layout_set, "cublasLtMatrixLayoutSetAttribute");
  library.find(all.preference_create, "cublasLtMatmulPreferenceCreate");
  library.find(all.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  library.find(all.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  library.find(all.candidates, "cublasLtMatmulAlgoGetHeuristic");
  library.find(all.matmul, "cublasLtMatmul");
  all.missing = library.missing();
  return all;
}

cudaDataType_t cuda_type_of(DType dtype) {
  if (dtype == DType::fp32) return CUDA_R_32F;
  return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_16F;
}

/// The largest power of two, at most the library's default, that divides the address and the address + `step` bytes.
uint32_t alignment_of(const std::byte* address, int64_t step = 0) {
  constexpr int kMost = 8;
  return 1U << std::min(kMost, std::countr_zero(reinterpret_cast<uintptr_t>(address) | static_cast<uintptr_t>(step)));
}

uint32_t alignment_of_b(const LibraryGemm& g) {
  return alignment_of(g.b, g.parts > 1 ? g.next_b() * bytes_of(g.dtype) : 0);
}

uint32_t alignment_of_c(const LibraryGemm& g) { return alignment_of(g.c, g.next_part); }

/// All that the choice among candidates depends on.
using Key = std::array<int64_t, 18>;

Key key_of(const LibraryGemm& g) {
  return {g.m,
          g.n,
          g.k,
          g.parts,
          g.lda,
          g.ldb,
          g.ldc,
          alignment_of(g.a),
          alignment_of_b(g),
          alignment_of_c(g),
          static_cast<int64_t>(g.dtype),
          static_cast<int64_t>(g.out_dtype),
          g.bias != nullptr ? static_cast<int64_t>(g.bias_dtype) : -1,
          g.bias != nullptr ? alignment_of(g.bias) : 0,
          g.b_is_kn,
          g.relu,
          g.tf32,
          g.sms};
}

/// A product as the library describes it. The library is column-major: a row-major matrix is a transposed one, so the
/// product is C^T = B^T * A^T.
class Description {
 public:
  Description(const LtFunctions& lt, const LibraryGemm& g) : lt_(lt), gemm_(g) {
    const cublasComputeType_t how = g.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    lt.check(lt.desc_create(&desc_, how, CUDA_R_32F), "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, g.b_is_kn ? CUBLAS_OP_N : CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, static_cast<int32_t>(g.sms));
    cublasLtEpilogue_t epilogue = g.relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
    if (g.bias != nullptr) {
      epilogue = g.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(g.bias));
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(cuda_type_of(g.bias_dtype)));
    }
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    describe(b_, g.dtype, g.b_is_kn ? g.n : g.k, g.b_is_kn ? g.k : g.n, g.ldb);
    describe(a_, g.dtype, g.k, g.m, g.lda);
    describe(c_, g.out_dtype, g.n, g.m, g.ldc);
    if (g.parts == 1) return;
    repeat(b_, g.next_b());
    repeat(a_, 0);
    repeat(c_, g.next_part / bytes_of(g.out_dtype));
  }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
  ~Description() {
    for (const auto layout : {a_, b_, c_}) {
      if (layout != nullptr) lt_.layout_destroy(layout);
    }
    if (desc_ != nullptr) lt_.desc_destroy(desc_);
  }

  /// The library's candidates, in its order of preference.
  [[nodiscard]] std::vector<cublasLtMatmulAlgo_t> candidates(cublasLtHandle_t handle) const {
    cublasLtMatmulPreference_t wish = nullptr;
    lt_.check(lt_.preference_create(&wish), "cublasLtMatmulPreferenceCreate");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
      lt_.preference_set(wish, what, &value, sizeof value);
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kLibraryWorkspace));
    // NOTE: other schemes for split-K round intermediate sums, or add in a random order.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of_b(gemm_));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(gemm_.a));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of_c(gemm_));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of_c(gemm_));
    std::array<cublasLtMatmulHeuristicResult_t, kMostCandidates> found{};
    int count = 0;
    const cublasStatus_t status =
        lt_.candidates(handle, desc_, b_, a_, c_, c_, wish, kMostCandidates, found.data(), &count);
    lt_.preference_destroy(wish);
    std::vector<cublasLtMatmulAlgo_t> list;
    for (int i = 0; i < count && status == CUBLAS_STATUS_SUCCESS; ++i) {
      if (found[i].state == CUBLAS_STATUS_SUCCESS) list.push_back(found[i].algo);
    }
    return list;
  }

  cublasStatus_t multiply(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algo, std::byte* workspace,
                          const Bases& bases, cudaStream_t stream) const {
    const float one = 1;
    const float zero = 0;
    std::byte* c = resolve(bases, gemm_.c);
    if (gemm_.bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, resolve(bases, gemm_.bias));
    return lt_.matmul(handle, desc_, &one, resolve(bases, gemm_.b), b_, resolve(bases, gemm_.a), a_, &zero, c, c_, c,
                      c_, &algo, workspace, kLibraryWorkspace, stream);
  }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t what, const T& value) const {
    lt_.check(lt_.desc_set(desc_, what, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }
  void describe(cublasLtMatrixLayout_t& layout, DType dtype, int64_t rows, int64_t cols, int64_t ld) {
    lt_.check(
        lt_.layout_create(&layout, cuda_type_of(dtype), static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), ld),
        "cublasLtMatrixLayoutCreate");
  }

  /// Make a layout a strided batch with one matrix for each part. `step`: elements from one matrix to the next.
  void repeat(cublasLtMatrixLayout_t layout, int64_t step) {
    const auto set = [&](cublasLtMatrixLayoutAttribute_t what, const auto& value) {
      lt_.check(lt_.layout_set(layout, what, &value, sizeof value), "cublasLtMatrixLayoutSetAttribute");
    };
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(gemm_.parts));
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, step);
  }

  const LtFunctions& lt_;
  LibraryGemm gemm_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr;
  cublasLtMatrixLayout_t b_ = nullptr;
  cublasLtMatrixLayout_t c_ = nullptr;
};

class BoundCall final : public LibraryCall {
 public:
  BoundCall(const LtFunctions& lt, cublasLtHandle_t handle, const LibraryGemm& gemm, const cublasLtMatmulAlgo_t& algo,
            std::byte* workspace)
      : lt_(lt), handle_(handle), description_(lt, gemm), algo_(algo), workspace_(workspace) {}
  void enqueue(const Bases& bases, cudaStream_t stream) const override {
    lt_.check(description_.multiply(handle_, algo_, workspace_, bases, stream), "cublasLtMatmul");
  }

 private:
  const LtFunctions& lt_;
  cublasLtHandle_t handle_;
  Description description_;
  cublasLtMatmulAlgo_t algo_;
  std::byte* workspace_;
};

/// Operands of a product of these sizes, filled with random numbers: a device is faster on zeros.
struct Scratch {
  cudaStream_t stream = nullptr;
  std::vector<std::shared_ptr<std::byte>> memory{};

  std::byte* add(DType dtype, int64_t elements) {
    constexpr int64_t kPattern = 1 << 20;
    const int64_t size = bytes_of(dtype);
    memory.push_back(new_device_memory(elements * size, stream));
    std::byte* at = memory.back().get();
    std::vector<std::byte> pattern(static_cast<size_t>(std::min(elements, kPattern) * size));
    std::minstd_rand random(7);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (size_t i = 0; i < pattern.size(); i += size) store_one(uniform(random), pattern.data() + i, dtype);
    copy_now(at, pattern.data(), std::ssize(pattern), stream);
    for (int64_t done = std::ssize(pattern); done < elements * size;) {
      const int64_t next = std::min(done, elements * size - done);
      copy_now(at + done, at, next, stream);
      done += next;
    }
    return at;
  }

  LibraryGemm place(LibraryGemm gemm) {
    gemm.a = add(gemm.dtype, gemm.m * gemm.lda);
    gemm.b = add(gemm.dtype, (gemm.b_is_kn ? gemm.k : gemm.n * gemm.parts) * gemm.ldb);
    gemm.c = add(gemm.out_dtype, gemm.m * gemm.ldc * gemm.parts);
    gemm.next_part = gemm.m * gemm.ldc * bytes_of(gemm.out_dtype);
    if (gemm.bias != nullptr) gemm.bias = add(gemm.bias_dtype, gemm.n);
    return gemm;
  }
};

}  // namespace

std::optional<std::string> missing_cublaslt(std::span<const char* const> names) {
  const LtFunctions functions = look_up_lt(names);
  if (functions.missing.empty()) return std::nullopt;
  return functions.missing;
}

struct Library::State {
  LtFunctions lt{};
  cudaStream_t stream = nullptr;
  cublasLtHandle_t handle = nullptr;
  std::map<Key, cublasLtMatmulAlgo_t> chosen{};

  /// us for one call, or infinity if the candidate does not run.
  double measure(const Description& product, const cublasLtMatmulAlgo_t& algo, std::byte* workspace, int calls) const {
    if (product.multiply(handle, algo, workspace, {}, stream) != CUBLAS_STATUS_SUCCESS) {
      static_cast<void>(cudaGetLastError());
      return std::numeric_limits<double>::infinity();
    }
    const Event start = new_timing_event();
    const Event stop = new_timing_event();
    float best_ms = std::numeric_limits<float>::infinity();
    for (int burst = 0; burst < 2; ++burst) {
      check(cudaEventRecord(start.get(), stream), "cudaEventRecord");
      for (int i = 0; i < calls; ++i) lt.check(product.multiply(handle, algo, workspace, {}, stream), "cublasLtMatmul");
      check(cudaEventRecord(stop.get(), stream), "cudaEventRecord");
      check(cudaEventSynchronize(stop.get()), "a candidate of cuBLASLt");
      float ms = 0;
      check(cudaEventElapsedTime(&ms, start.get(), stop.get()), "cudaEventElapsedTime");
      best_ms = std::min(best_ms, ms);
    }
    return 1e3 * static_cast<double>(best_ms) / calls;
  }

  const cublasLtMatmulAlgo_t& choose(const LibraryGemm& gemm) {
    const Key key = key_of(gemm);
    if (const auto found = chosen.find(key); found != chosen.end()) return found->second;
    const std::vector<cublasLtMatmulAlgo_t> candidates = Description(lt, gemm).candidates(handle);
    Scratch scratch{stream};
    const LibraryGemm placed = scratch.place(gemm);
    const Description product(lt, placed);
    const std::shared_ptr<std::byte> workspace = new_device_memory(kLibraryWorkspace, stream);
    const double ops_per_us = gemm.dtype == DType::fp32 ? 40e6 : 600e6;
    const double expected_us =
        2.0 * static_cast<double>(gemm.m * gemm.n * gemm.parts) * static_cast<double>(gemm.k) / ops_per_us;
    const int calls = static_cast<int>(std::clamp(kBurstUs / std::max(expected_us, 1.0), 1.0, double{kMostCalls}));
    double best_us = std::numeric_limits<double>::infinity();
    for (const cublasLtMatmulAlgo_t& algo : candidates) {
      const double us = measure(product, algo, workspace.get(), calls);
      if (us >= best_us) continue;
      best_us = us;
      chosen[key] = algo;
    }
    const auto found = chosen.find(key);
    if (found == chosen.end()) {
      fail(ErrorKind::unsupported, "cuBLASLt has no kernel for a product of {} x {} x {} of {} into {}", gemm.m,
           gemm.n * gemm.parts, gemm.k, to_string(gemm.dtype), to_string(gemm.out_dtype));
    }
    return found->second;
  }
};

Library::Library(cudaStream_t stream, std::span<const char* const> names) : state_(std::make_unique<State>()) {
  state_->stream = stream;
  state_->lt = look_up_lt(names);
  if (!state_->lt.missing.empty()) fail(ErrorKind::unsupported, "{}", state_->lt.missing);
  state_->lt.check(state_->lt.create(&state_->handle), "cublasLtCreate");
}

Library::~Library() {
  if (state_->handle != nullptr) state_->lt.destroy(state_->handle);
}

void Library::prepare(const LibraryGemm& gemm) { static_cast<void>(state_->choose(gemm)); }

std::unique_ptr<LibraryCall> Library::bind(const LibraryGemm& gemm, std::byte* workspace) {
  return std::make_unique<BoundCall>(state_->lt, state_->handle, gemm, state_->choose(gemm), workspace);
}

}  // namespace tilewire::cuda
