// Matrices in .npy files (format 1 to 3; in C order, or one row or column): reads headers, reads and writes blocks.
// Used by `tilewire run`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tilewire/tensor.hpp"

namespace tilewire::cli {

/// The header of a .npy file. Types: '<f4' fp32, '<f2' fp16, '<i4' int32, under any of NumPy's names except big endian;
/// and bf16, which NumPy does not have, as 'bfloat16', as '<V2' (by ml_dtypes), or as '<u2' if the caller wants bf16.
/// '<f8' is refused: rounding it would hide a caller's mistake.
struct NpyHeader {
  DType dtype = DType::fp32;
  int64_t rows = 0;
  int64_t cols = 0;         ///< a vector is one row
  int64_t data_offset = 0;  ///< bytes before the first element
  bool uint16 = false;      ///< bf16 as '<u2'
  bool vector = false;      ///< one-dimensional

  bool operator==(const NpyHeader&) const = default;
};

/// Read and check a file's header. `wanted` decides the meaning of '<u2'. Throws Error(invalid_input) that names the
/// file if it is missing or truncated, or has a wrong type or more than two dimensions.
[[nodiscard]] NpyHeader read_npy_header(const std::string& path, DType wanted);

/// A file that stays open while many of its blocks are read. Copies share it; several threads may read at once.
class NpyReader {
 public:
  /// `header`: of this file. Throws Error(invalid_input) if the file cannot be opened.
  NpyReader(const std::string& path, const NpyHeader& header);
  [[nodiscard]] const NpyHeader& header() const { return header_; }
  /// As read_npy_block.
  void read(int64_t row, int64_t col, const Tensor& tensor) const;

 private:
  struct OpenFile;
  std::string path_;
  NpyHeader header_;
  std::shared_ptr<const OpenFile> open_;
};

/// Read the block that starts at (row, col) of the file's matrix into `tensor`.
void read_npy_block(const std::string& path, const NpyHeader& header, int64_t row, int64_t col, const Tensor& tensor);

/// The header with the data_offset of a file made by create_npy.
[[nodiscard]] NpyHeader with_offset(NpyHeader header);
/// Create a file of the header's shape, with zeros. Returns with_offset(header).
[[nodiscard]] NpyHeader create_npy(const std::string& path, const NpyHeader& header);

/// Write `tensor` at (row, col) of a file made by create_npy. Several processes may write at once.
void write_npy_block(const std::string& path, const NpyHeader& header, int64_t row, int64_t col, const Tensor& tensor);

}  // namespace tilewire::cli
