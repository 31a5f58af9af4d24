// cuBLASLt as a provider of matrix products: looked up when it is needed, never linked.
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

/// Newest first.
inline constexpr std::array<const char*, 2> kCublasLtNames{"libcublasLt.so.13", "libcublasLt.so.12"};
/// Bytes of device memory that one call may use.
inline constexpr int64_t kLibraryWorkspace = int64_t{64} << 20;

/// C[M,N] = A * B, row by row, accumulated in fp32; then bias, then ReLU. Leading dimensions in elements. With `parts`,
/// B has N columns for each, and there are as many C, at the same distance from each other.
struct LibraryGemm {
  int64_t m = 0;
  int64_t n = 0;  ///< of a part
  int64_t k = 0;
  int parts = 1;
  int64_t next_part = 0;         ///< bytes from the C of a part to the next one; of several parts more than 0
  const std::byte* a = nullptr;  ///< this and the following may be relative
  const std::byte* b = nullptr;
  std::byte* c = nullptr;
  const std::byte* bias = nullptr;  ///< n elements, or none
  int64_t lda = 0;
  int64_t ldb = 0;
  int64_t ldc = 0;
  DType dtype = DType::bf16;  ///< of A and B
  DType out_dtype = DType::bf16;
  DType bias_dtype = DType::bf16;
  bool b_is_kn = false;  ///< B is stored [K,N]; otherwise [N,K]
  bool relu = false;
  bool tf32 = false;  ///< elements of fp32 may be rounded to TF32 before they are multiplied
  int sms = 0;        ///< that it can count on; 0 = all

  /// Elements from the columns of B of a part to those of the next one.
  [[nodiscard]] int64_t next_b() const { return b_is_kn ? n : n * ldb; }
};

/// Why the library cannot be used, or nothing. Loads it for good.
[[nodiscard]] std::optional<std::string> missing_cublaslt(std::span<const char* const> names = kCublasLtNames);

/// A product that is ready to be enqueued again and again.
class LibraryCall {
 public:
  virtual ~LibraryCall() = default;
  /// `bases`: of what it reads and writes. No allocation, no waiting. Throws Error where the library
  /// refuses.
  virtual void enqueue(const Bases& bases, cudaStream_t stream) const = 0;
};

/// The library on the current device. One thread at a time.
class Library {
 public:
  /// `stream`: what `prepare` and `bind` do on the device comes in it; no capture knows it, and it outlives this.
  /// Throws Error(unsupported) as missing_cublaslt says.
  explicit Library(cudaStream_t stream, std::span<const char* const> names = kCublasLtNames);
  ~Library();

  /// Time the library's candidates on random data of these sizes and strides, and remember the fastest; its kernel is
  /// loaded then. Addresses count by their alignment only. Takes some tens of ms and memory for the operands, once for
  /// each different product. Throws Error(unsupported) where there is no candidate.
  void prepare(const LibraryGemm& gemm);
  /// `workspace`: kLibraryWorkspace bytes. What was not prepared is prepared now. The call must not outlive the
  /// library.
  [[nodiscard]] std::unique_ptr<LibraryCall> bind(const LibraryGemm& gemm, std::byte* workspace);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tilewire::cuda
