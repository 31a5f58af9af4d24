// cuBLASLt for matrix products: looked up at run time, never linked.
// Used by programs for tasks of kind gemm_call, and by `tilewire info`.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "backends/cuda/kernels/bases.hpp"
#include "tilewire/dtype.hpp"

namespace tilewire::cuda {

/// File names of the library, newest first.
inline constexpr std::array<const char*, 2> kCublasLtNames{"libcublasLt.so.13", "libcublasLt.so.12"};
/// Bytes of workspace that one call may use.
inline constexpr int64_t kLibraryWorkspace = int64_t{64} << 20;

/// C[M,N] = A * B, row-major, accumulated in fp32; then bias, then ReLU. Leading dimensions in elements. With several
/// `parts`, each part has N columns of B and a C of its own, at equal distances.
struct LibraryGemm {
  int64_t m = 0;
  int64_t n = 0;  ///< of a part
  int64_t k = 0;
  int parts = 1;
  int64_t next_part = 0;         ///< bytes from the C of a part to the next one; more than 0 if there are several parts
  const std::byte* a = nullptr;  ///< this and the pointers below may be relative
  const std::byte* b = nullptr;
  std::byte* c = nullptr;
  const std::byte* bias = nullptr;  ///< n elements, or null
  int64_t lda = 0;
  int64_t ldb = 0;
  int64_t ldc = 0;
  DType dtype = DType::bf16;  ///< of A and B
  DType out_dtype = DType::bf16;
  DType bias_dtype = DType::bf16;
  bool b_is_kn = false;  ///< B is stored [K,N]; otherwise [N,K]
  bool relu = false;
  bool tf32 = false;  ///< fp32 operands may be rounded to TF32
  int sms = 0;        ///< SMs that it can count on; 0 = all

  /// Elements of B from one part's columns to the next part's.
  [[nodiscard]] int64_t next_b() const { return b_is_kn ? n : n * ldb; }
};

/// Why the library cannot be used, or nothing. It stays loaded.
[[nodiscard]] std::optional<std::string> missing_cublaslt(std::span<const char* const> names = kCublasLtNames);

/// A library call that can be enqueued any number of times.
class LibraryCall {
 public:
  virtual ~LibraryCall() = default;
  /// `bases`: for its relative addresses. Neither allocates nor waits. Throws Error if the library refuses.
  virtual void enqueue(const Bases& bases, cudaStream_t stream) const = 0;
};

/// The library on the current device. For one thread at a time.
class Library {
 public:
  /// `stream`: `prepare` and `bind` work in it; it must not be captured, and must outlive this object. Throws
  /// Error(unsupported) with the reason of missing_cublaslt.
  explicit Library(cudaStream_t stream, std::span<const char* const> names = kCublasLtNames);
  ~Library();

  /// Time the library's candidates on random data of these sizes and strides, and remember the fastest; this loads its
  /// kernel. Of the addresses only the alignment counts. Takes some tens of ms and memory for the operands, once for
  /// each different product. Throws Error(unsupported) if there is no candidate.
  void prepare(const LibraryGemm& gemm);
  /// A call of the fastest candidate; a product that is not prepared is prepared now. `workspace`: kLibraryWorkspace
  /// bytes. The call must not outlive the library.
  [[nodiscard]] std::unique_ptr<LibraryCall> bind(const LibraryGemm& gemm, std::byte* workspace);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tilewire::cuda
