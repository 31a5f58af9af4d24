// Products of tiles: every dtype, layout and odd sizes against plain loops in double.
#include "backends/host/gemm.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/convert.hpp"

namespace tilewire::host {
namespace {

/// A matrix with a gap between its rows.
struct Stored {
  std::vector<std::byte> bytes;
  Operand operand;
  DType dtype;

  Stored(DType type, int64_t rows, int64_t cols, bool transposed, std::minstd_rand& random) : dtype(type) {
    const int64_t stored_rows = transposed ? cols : rows;
    const int64_t stride = (transposed ? rows : cols) + static_cast<int64_t>(random() % 4);
    bytes.resize(static_cast<size_t>(stored_rows * stride * bytes_of(type) + 8));
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int64_t i = 0; i < stored_rows * stride; ++i) store_one(uniform(random), &bytes[i * bytes_of(type)], type);
    operand = {bytes.data(), type, stride, transposed};
  }
  [[nodiscard]] double at(int64_t row, int64_t col) const {
    const int64_t index = operand.transposed ? col * operand.stride + row : row * operand.stride + col;
    return load_one(&bytes[index * bytes_of(dtype)], dtype);
  }
};

void compare(const Product& p, const Stored& a, const Stored& b, const std::vector<float>& c) {
  for (int64_t row = 0; row < p.m; ++row) {
    for (int64_t col = 0; col < p.n; ++col) {
      double sum = 0;
      for (int64_t i = 0; i < p.k; ++i) sum += a.at(row, i) * b.at(i, col);
      ASSERT_NEAR(c[row * p.c_stride + col], sum, 1e-4 * std::sqrt(static_cast<double>(p.k) + 1))
          << p.m << " x " << p.n << " x " << p.k << " at " << row << ", " << col;
    }
  }
}

TEST(HostGemm, EveryTypeLayoutAndOddSize) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u, %s\n", seed, host_gemm_library().c_str());
  std::minstd_rand random(seed);
  Gemm gemm(1);
  for (int trial = 0; trial < 150; ++trial) {
    const DType dtype = std::array{DType::fp32, DType::bf16, DType::fp16}[trial % 3];
    const auto size = [&] { return static_cast<int64_t>(random() % (random() % 3 == 0 ? 4 : 70)); };
    const int64_t m = size();
    const int64_t n = size();
    const int64_t k = size();
    const Stored a(dtype, m, k, random() % 2 == 0, random);
    const Stored b(dtype, k, n, random() % 2 == 0, random);
    std::vector<float> c(static_cast<size_t>(m * (n + 3) + 1), 99);
    gemm.forget();
    const Product product{m, n, k, a.operand, b.operand, c.data(), DType::fp32, n + 3};
    gemm.multiply(product);
    compare(product, a, b, c);
    for (int64_t row = 0; row < m; ++row) EXPECT_EQ(c[row * (n + 3) + n], 99) << "wrote past the row";
  }
}

TEST(HostGemm, DeepAndWideProductsOfConvertedTypes) {
  // Deeper and wider than the blocks that are converted together.
  std::minstd_rand random(7);
  Gemm gemm(1);
  for (const auto [m, n, k] : {std::array{3, 2, 9001}, std::array{1030, 2, 5}, std::array{2, 2050, 5}}) {
    const Stored a(DType::fp16, m, k, false, random);
    const Stored b(DType::fp16, k, n, true, random);
    std::vector<float> c(static_cast<size_t>(m) * n);
    const Product product{m, n, k, a.operand, b.operand, c.data(), DType::fp32, n};
    gemm.forget();
    gemm.multiply(product);
    compare(product, a, b, c);
  }
}

TEST(HostGemm, ConvertedOperandsAreForgotten) {
  std::minstd_rand random(8);
  Gemm gemm(1);
  Stored a(DType::fp16, 4, 4, false, random);
  const Stored b(DType::fp16, 4, 4, false, random);
  std::vector<float> c(16);
  const Product product{4, 4, 4, a.operand, b.operand, c.data(), DType::fp32, 4};
  gemm.multiply(product);
  for (int64_t i = 0; i < 4 * a.operand.stride; ++i) store_one(2, &a.bytes[2 * i], DType::fp16);
  gemm.forget();
  gemm.multiply(product);
  compare(product, a, b, c);
}

TEST(HostGemm, SameBitsOnEveryRunAndInEveryDestination) {
  std::minstd_rand random(9);
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    const Stored a(dtype, 64, 300, false, random);
    const Stored b(dtype, 300, 96, true, random);
    std::vector<float> first(64 * 96);
    for (int run = 0; run < 5; ++run) {
      Gemm gemm(1);
      std::vector<float> c(64 * 96, 99);
      gemm.multiply({64, 96, 300, a.operand, b.operand, c.data(), DType::fp32, 96});
      if (run == 0) first = c;
      EXPECT_EQ(c, first);
    }
  }
}

TEST(HostGemm, StoresWhatItSaysItStores) {
  std::minstd_rand random(10);
  Gemm gemm(1);
  EXPECT_TRUE(gemm.stores(DType::bf16, DType::fp32));
  EXPECT_FALSE(gemm.stores(DType::fp32, DType::bf16));
  EXPECT_FALSE(gemm.stores(DType::fp16, DType::fp16));
  if (!gemm.stores(DType::bf16, DType::bf16)) GTEST_SKIP() << "this CPU or build has no bf16 products";
  const Stored a(DType::bf16, 33, 70, false, random);
  const Stored b(DType::bf16, 70, 21, true, random);
  std::vector<float> exact(33 * 21);
  std::vector<uint16_t> rounded(33 * 21);
  gemm.multiply({33, 21, 70, a.operand, b.operand, exact.data(), DType::fp32, 21});
  gemm.multiply({33, 21, 70, a.operand, b.operand, rounded.data(), DType::bf16, 21});
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_EQ(rounded[i], bf16_from(exact[i])) << i;
}

TEST(HostGemm, NanAndInfPassThrough) {
  Gemm gemm(1);
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    std::vector<std::byte> a(4 * 4);
    std::vector<std::byte> b(4 * 4);
    const float values[] = {1, NAN, INFINITY, 1};
    for (int i = 0; i < 4; ++i) {
      store_one(values[i], &a[i * bytes_of(dtype)], dtype);
      store_one(1, &b[i * bytes_of(dtype)], dtype);
    }
    std::vector<float> c(4);
    gemm.forget();
    gemm.multiply({2, 2, 2, {a.data(), dtype, 2, false}, {b.data(), dtype, 2, false}, c.data(), DType::fp32, 2});
    EXPECT_TRUE(std::isnan(c[0]) && std::isnan(c[1]));
    EXPECT_TRUE(std::isinf(c[2]) && std::isinf(c[3]));
  }
}

}  // namespace
}  // namespace tilewire::host
