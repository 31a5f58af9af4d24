// Conversion between fp32 and the stored element types, row by row.
// Called by the host backend, references and verification.
#include "core/convert.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/race_ranges.hpp"
#include "core/text.hpp"
#include "core/vector_loops.hpp"

namespace tilewire {
namespace {

template <class Word, class Convert>
TILEWIRE_INLINE void load_words(const void* from, int64_t n, float* to, const Convert& convert) {
  announce_read(from, sizeof(Word) * static_cast<size_t>(n));
  announce_write(to, sizeof(float) * static_cast<size_t>(n));
  const auto* words = static_cast<const Word*>(from);
  for (int64_t i = 0; i < n; ++i) to[i] = convert(words[i]);
}

template <class Word, class Convert>
TILEWIRE_INLINE void store_words(const float* from, int64_t n, void* to, const Convert& convert) {
  announce_read(from, sizeof(float) * static_cast<size_t>(n));
  announce_write(to, sizeof(Word) * static_cast<size_t>(n));
  auto* words = static_cast<Word*>(to);
  for (int64_t i = 0; i < n; ++i) words[i] = convert(from[i]);
}

/// Branch-free, so that the compiler vectorises loops over it.
TILEWIRE_INLINE uint16_t round_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40U;
  return static_cast<uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? nan : rounded);
}

TILEWIRE_INLINE float widen_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

/// A multiplication moves the exponent; it also normalises subnormals.
TILEWIRE_INLINE float widen_fp16(uint16_t bits) {
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7FFFU) << 13;
  const auto finite = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F);
  const uint32_t wide = (bits & 0x7C00U) == 0x7C00U ? magnitude | 0x7F800000U : finite;
  return std::bit_cast<float>(wide | static_cast<uint32_t>(bits & 0x8000U) << 16);
}

TILEWIRE_INLINE uint16_t round_to_fp16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x3FFU));
  if (magnitude >= 0x477FF000U) return static_cast<uint16_t>(sign | 0x7C00U);
  if (magnitude >= 0x38800000U) {
    const uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U) - 0x38000000U;
    return static_cast<uint16_t>(sign | (rounded >> 13));
  }
  // Subnormal: the addition of 0.5 rounds at the last bit of fp16.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
  return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000U));
}

TILEWIRE_INLINE float widen_fp8(uint8_t bits) {
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7FU) << 20;
  const auto finite = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p120F);
  const uint32_t wide = (bits & 0x7FU) == 0x7FU ? 0x7FC00000U : finite;
  return std::bit_cast<float>(wide | static_cast<uint32_t>(bits & 0x80U) << 24);
}

TILEWIRE_INLINE uint8_t round_to_fp8(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 24) & 0x80U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<uint8_t>(sign | 0x7FU);
  if (magnitude >= 0x43E00000U) return static_cast<uint8_t>(sign | 0x7EU);
  if (magnitude >= 0x3C800000U) {
    const uint32_t rounded = magnitude + 0x7FFFFU + ((magnitude >> 20) & 1U) - 0x3C000000U;
    return static_cast<uint8_t>(sign | (rounded >> 20));
  }
  // Subnormal: the addition of 2^14 rounds at the last bit.
  const float shifted = std::bit_cast<float>(magnitude) + 0x1p14F;
  return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x46800000U));
}

TILEWIRE_INLINE int8_t round_to_int8(float value) {
  if (!(value >= -127.0F)) return value < 0 ? -127 : 0;  // a NaN becomes 0
  return static_cast<int8_t>(std::lrintf(std::min(value, 127.0F)));
}

}  // namespace

uint16_t bf16_from(float value) { return round_to_bf16(value); }

float from_bf16(uint16_t bits) { return widen_bf16(bits); }

uint16_t fp16_from(float value) { return round_to_fp16(value); }

float from_fp16(uint16_t bits) { return widen_fp16(bits); }

TILEWIRE_VECTOR_LOOPS TILEWIRE_ANNOUNCED void load_row(const void* from, DType dtype, int64_t n, float* to) {
  switch (dtype) {
    case DType::fp32:
      if (n > 0) std::memcpy(to, from, static_cast<size_t>(n) * 4);
      return;
    case DType::bf16:
      return load_words<uint16_t>(from, n, to, widen_bf16);
    case DType::fp16:
      return load_words<uint16_t>(from, n, to, widen_fp16);
    case DType::int32:
      return load_words<int32_t>(from, n, to, [](int32_t word) { return static_cast<float>(word); });
    case DType::fp8_e4m3:
      return load_words<uint8_t>(from, n, to, widen_fp8);
    case DType::int8:
      return load_words<int8_t>(from, n, to, [](int8_t word) { return static_cast<float>(word); });
  }
  fail(ErrorKind::internal, "load_row: unknown dtype {}", static_cast<int>(dtype));
}

TILEWIRE_VECTOR_LOOPS TILEWIRE_ANNOUNCED void store_row(const float* from, int64_t n, void* to, DType dtype) {
  switch (dtype) {
    case DType::fp32:
      if (n > 0) std::memcpy(to, from, static_cast<size_t>(n) * 4);
      return;
    case DType::bf16:
      return store_words<uint16_t>(from, n, to, round_to_bf16);
    case DType::fp16:
      return store_words<uint16_t>(from, n, to, round_to_fp16);
    case DType::int32:
      return store_words<int32_t>(from, n, to, [](float value) { return static_cast<int32_t>(std::lrintf(value)); });
    case DType::fp8_e4m3:
      return store_words<uint8_t>(from, n, to, round_to_fp8);
    case DType::int8:
      return store_words<int8_t>(from, n, to, round_to_int8);
  }
  fail(ErrorKind::internal, "store_row: unknown dtype {}", static_cast<int>(dtype));
}

float load_one(const void* from, DType dtype) {
  float value = 0;
  load_row(from, dtype, 1, &value);
  return value;
}

void store_one(float value, void* to, DType dtype) { store_row(&value, 1, to, dtype); }

}  // namespace tilewire
