// Whether two matrices share memory, against the addresses of all their elements.
#include "core/overlap.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

namespace tilewire {
namespace {

/// The bytes of all elements, by address.
std::vector<uintptr_t> bytes_in(const Tensor& tensor) {
  std::vector<uintptr_t> bytes;
  const int64_t size = bytes_of(tensor.dtype);
  for (int64_t row = 0; row < tensor.rows; ++row) {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(tensor.data) + row * tensor.row_stride * size;
    for (int64_t i = 0; i < tensor.cols * size; ++i) bytes.push_back(begin + i);
  }
  std::ranges::sort(bytes);
  return bytes;
}

bool share_bytes(const Tensor& x, const Tensor& y) {
  const std::vector<uintptr_t> mine = bytes_in(x);
  return std::ranges::any_of(bytes_in(y), [&](uintptr_t byte) { return std::ranges::binary_search(mine, byte); });
}

/// A small matrix somewhere in the memory; `row_stride` 0 = random.
Tensor any_tensor(std::array<float, 256>& memory, int64_t row_stride, std::minstd_rand& random) {
  const auto pick = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  Tensor tensor{memory.data() + pick(0, 100), pick(0, 1) == 0 ? DType::fp32 : DType::bf16, pick(0, 5), 0, row_stride};
  if (row_stride == 0) tensor.row_stride = pick(1, 12);
  // Rows of fp32 are as far apart as those of twice as many 16-bit elements.
  if (tensor.dtype == DType::bf16) tensor.row_stride *= 2;
  tensor.cols = pick(0, tensor.rows <= 1 ? 20 : tensor.row_stride);
  return tensor;
}

TEST(Overlap, OfEqualStridesIsExact) {
  std::array<float, 256> memory{};
  std::minstd_rand random(5);
  int apart_inside = 0;
  for (int round = 0; round < 20'000; ++round) {
    const int64_t stride = 1 + round % 12;
    const Tensor x = any_tensor(memory, stride, random);
    const Tensor y = any_tensor(memory, stride, random);
    const bool shared = share_bytes(x, y);
    ASSERT_EQ(overlap(x, y), shared) << "round " << round;
    ASSERT_EQ(overlap(y, x), shared) << "round " << round;
    const std::vector<uintptr_t> of_x = bytes_in(x);
    const std::vector<uintptr_t> of_y = bytes_in(y);
    if (shared || of_x.empty() || of_y.empty()) continue;
    apart_inside += int{of_x.front() < of_y.back() && of_y.front() < of_x.back()};
  }
  EXPECT_GT(apart_inside, 300) << "blocks of columns beside each other";
}

TEST(Overlap, OfOtherStridesIsThatOfTheWholeMemory) {
  std::array<float, 256> memory{};
  std::minstd_rand random(6);
  for (int round = 0; round < 20'000; ++round) {
    const Tensor x = any_tensor(memory, 0, random);
    const Tensor y = any_tensor(memory, 0, random);
    const std::vector<uintptr_t> of_x = bytes_in(x);
    const std::vector<uintptr_t> of_y = bytes_in(y);
    const bool seen = overlap(x, y);
    ASSERT_EQ(overlap(y, x), seen) << "round " << round;
    ASSERT_TRUE(seen || !share_bytes(x, y)) << "round " << round;
    const bool outside = of_x.empty() || of_y.empty() || of_x.back() < of_y.front() || of_y.back() < of_x.front();
    ASSERT_FALSE(seen && outside) << "round " << round;
  }
}

}  // namespace
}  // namespace tilewire
