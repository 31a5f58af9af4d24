// Inner loops over elements, written to vectorise.
// Called by tasks.cpp.
#include "backends/host/elements.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/convert.hpp"
#include "core/race_ranges.hpp"
#include "core/text.hpp"
#include "core/vector_loops.hpp"

namespace tilewire::host {
namespace {

template <class Word, class Widen, class Round>
void accumulate_words(const float* values, int64_t n, std::byte* to, const Widen& widen, const Round& round) {
  auto* words = reinterpret_cast<Word*>(to);
  for (int64_t i = 0; i < n; ++i) {
    const float value = widen(round(values[i]));
    const std::atomic_ref<Word> word(words[i]);
    Word old = word.load(std::memory_order_relaxed);
    while (!word.compare_exchange_weak(old, round(widen(old) + value), std::memory_order_relaxed)) {
    }
  }
}

template <class Word>
constexpr Word kMissing = std::numeric_limits<Word>::max();

// NOTE: release and acquire order the resets of one call before the stores of the call after the next one
// (Buffer::copies).
template <class Word>
void publish_words(const std::byte* from, int64_t n, std::byte* to) {
  for (int64_t i = 0; i < n; ++i) {
    Word word = 0;
    std::memcpy(&word, from + i * sizeof word, sizeof word);
    if (word == kMissing<Word>) word >>= 1;
    std::atomic_ref<Word>(reinterpret_cast<Word*>(to)[i]).store(word, std::memory_order_release);
  }
}

template <class Word>
int64_t take_words(std::byte* from, int64_t n, std::byte* to) {
  for (int64_t i = 0; i < n; ++i) {
    const std::atomic_ref<Word> at(reinterpret_cast<Word*>(from)[i]);
    const Word word = at.load(std::memory_order_acquire);
    if (word == kMissing<Word>) return i;
    at.store(kMissing<Word>, std::memory_order_relaxed);
    std::memcpy(to + i * sizeof word, &word, sizeof word);
  }
  return n;
}

TILEWIRE_VECTOR_LOOPS TILEWIRE_ANNOUNCED void add(const float* values, int64_t n, float* sums) {
  for (int64_t i = 0; i < n; ++i) sums[i] += values[i];
}

constexpr int64_t kSums = 16;  // partial sums of a row, so that the loop vectorises

// The sum of (value - mean)^power.
TILEWIRE_VECTOR_LOOPS float sum_of_powers(const float* values, int64_t n, float mean, bool squares) {
  std::array<float, kSums> sums{};
  float* const lanes = sums.data();
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int64_t lane = 0; lane < kSums; ++lane) {
      const float value = values[i + lane] - mean;
      lanes[lane] += squares ? value * value : value;
    }
  }
  float sum = 0;
  for (; i < n; ++i) sum += squares ? (values[i] - mean) * (values[i] - mean) : values[i] - mean;
  for (const float part : sums) sum += part;
  return sum;
}

}  // namespace

void copy_block(const Block& from, const Block& to) {
  const auto row_bytes = static_cast<size_t>(from.cols * bytes_of(from.dtype));
  if (row_bytes == 0 || from.rows == 0) return;
  if (from.stride == from.cols && to.stride == to.cols) {
    std::memcpy(to.data, from.data, row_bytes * static_cast<size_t>(from.rows));
    return;
  }
  for (int64_t row = 0; row < from.rows; ++row) std::memcpy(to.at(row, 0), from.at(row, 0), row_bytes);
}

void add_row(const std::byte* row, DType dtype, int64_t n, float* sums, float* spare) {
  const auto* values = reinterpret_cast<const float*>(row);
  if (dtype != DType::fp32) {
    load_row(row, dtype, n, spare);
    values = spare;
  }
  announce_read(values, sizeof(float) * static_cast<size_t>(n));
  announce_write(sums, sizeof(float) * static_cast<size_t>(n));
  add(values, n, sums);
}

void normalise(const Norm& norm, float* values, int64_t n, const float* weight, const float* bias) {
  const auto count = static_cast<float>(n);
  const float mean = norm.kind == NormKind::layer ? sum_of_powers(values, n, 0, false) / count : 0.0F;
  const float variance = sum_of_powers(values, n, mean, true) / count;
  const float factor = 1.0F / std::sqrt(variance + static_cast<float>(norm.eps));
  for (int64_t i = 0; i < n; ++i) values[i] = (values[i] - mean) * factor * weight[i] + (bias ? bias[i] : 0.0F);
}

float quantise(DType dtype, float* values, int64_t n) {
  uint32_t bits = 0;  // NOTE: of numbers without a sign, in their order; a NaN is the largest
  for (int64_t i = 0; i < n; ++i) bits = std::max(bits, std::bit_cast<uint32_t>(values[i]) & 0x7FFFFFFFU);
  const auto most = std::bit_cast<float>(bits);
  const float scale = most == 0 ? 1 : most / largest_of(dtype);
  for (int64_t i = 0; i < n; ++i) values[i] /= scale;
  return scale;
}

void scale(float* values, int64_t n, float factor) {
  for (int64_t i = 0; i < n; ++i) values[i] *= factor;
}

void accumulate(const float* values, int64_t n, std::byte* to, DType dtype) {
  const auto same = [](uint32_t bits) { return std::bit_cast<float>(bits); };
  const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };
  switch (dtype) {
    case DType::fp32:
      return accumulate_words<uint32_t>(values, n, to, same, bits);
    case DType::bf16:
      return accumulate_words<uint16_t>(values, n, to, from_bf16, bf16_from);
    case DType::fp16:
      return accumulate_words<uint16_t>(values, n, to, from_fp16, fp16_from);
    default:
      break;
  }
  fail(ErrorKind::internal, "accumulate into elements of type {}", static_cast<int>(dtype));
}

void publish(const std::byte* from, int64_t n, std::byte* to, DType dtype) {
  bytes_of(dtype) == 2 ? publish_words<uint16_t>(from, n, to) : publish_words<uint32_t>(from, n, to);
}

int64_t take_published(std::byte* from, int64_t n, std::byte* to, DType dtype) {
  return bytes_of(dtype) == 2 ? take_words<uint16_t>(from, n, to) : take_words<uint32_t>(from, n, to);
}

}  // namespace tilewire::host
