// Matrix products of tiles on one or a few cores, by oneDNN or by plain loops (a build option).
// One per task runner. It keeps prepared kernels and scratch memory between calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tilewire/dtype.hpp"

namespace tilewire::host {

/// "oneDNN 2.6.3", "plain loops".
[[nodiscard]] std::string host_gemm_library();

/// An operand in memory. Row i of a transposed operand is column i of the stored matrix.
struct Operand {
  const void* data = nullptr;
  DType dtype = DType::fp32;
  int64_t stride = 0;  ///< elements from one stored row to the next
  bool transposed = false;

  bool operator==(const Operand&) const = default;
};

/// c (m x n) = a (m x k) times b (k x n), accumulated in fp32.
struct Product {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  Operand a;
  Operand b;
  void* c = nullptr;
  DType c_dtype = DType::fp32;
  int64_t c_stride = 0;
  bool add = false;  ///< add to the contents of c
};

/// The library. It takes operands of one dtype that it `takes`, and stores fp32 or that dtype.
class Kernels {
 public:
  Kernels();
  ~Kernels();
  [[nodiscard]] bool takes(DType dtype) const;
  void multiply(const Product& product, int threads);
  /// Operations that take one thread a fraction of a second
  static const int64_t kPart;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class Gemm {
 public:
  explicit Gemm(int threads = 1) : threads_(threads) {}
  /// Set the number of threads. `check` is called before every part of a product and throws if the call must end. It
  /// must live until the next begin_call.
  void begin_call(int threads, const std::function<void()>& check);
  /// Forget converted operands, because their memory may change.
  void forget();
  /// Whether `multiply` can round to `out` without a further pass.
  [[nodiscard]] bool stores(DType in, DType out) const;
  /// Multiply. K = 0 gives zeros. Equal sizes, strides and types give the same bits.
  void multiply(const Product& product);

 private:
  /// A block of an operand in fp32, reused while the same block is requested again.
  struct Converted {
    Operand from;
    int64_t rows = 0;
    int64_t cols = 0;
    std::vector<float> values;
  };
  static Operand convert(const Operand& from, int64_t rows, int64_t cols, Converted& into);
  void multiply_native(const Product& product);
  void multiply_converted(const Product& product);

  int threads_;
  const std::function<void()>* check_ = nullptr;
  Kernels kernels_;
  Converted a_;
  Converted b_;
};

}  // namespace tilewire::host
