// A problem's buffers in .npy files: one global matrix, or one file per rank.
// Used by `tilewire run`.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/npy.hpp"
#include "operators/tensors.hpp"

namespace tilewire::cli {

/// "name=path" pairs, in which "{rank}" stands for the rank: then the file holds that rank's part.
using FileNames = std::map<std::string, std::string>;

/// Parse "name=path" texts of --input or --output. Throws Error(invalid_input).
[[nodiscard]] FileNames parse_file_names(const std::string& flag, const std::vector<std::string>& texts);

/// Check that every input has a file, and that nothing else is named. Sizes do not matter. Throws Error(invalid_input)
/// that lists the names.
void check_buffer_names(const Problem& problem, const FileNames& inputs, const FileNames& outputs);

/// The files of one problem, checked against its buffers.
class ProblemFiles {
 public:
  /// Check that every input has a file of its type and shape, and that outputs are known names. Throws
  /// Error(invalid_input) that names the file, what it holds and what was wanted.
  ProblemFiles(const Problem& problem, int num_ranks, const FileNames& inputs, const FileNames& outputs,
               bool write_uint16);

  /// Rows of the inputs, read from the files.
  [[nodiscard]] ReadRow reader() const;
  /// Write this rank's outputs. Collective. Files appear complete or not at all.
  void write(Group& group, const RankTensors& tensors) const;

 private:
  struct Entry {
    std::string path;  ///< with "{rank}"; empty = not asked for
    bool per_rank = false;
    std::vector<NpyReader> readers;  ///< of inputs: one per rank, or one
    Shape global;
    std::vector<Meaning> meanings;  ///< by rank
  };
  void check_input(const Entry& entry, const Buffer& buffer);
  void write_output(Group& group, const Entry& entry, const Buffer& buffer, const Tensor& tensor) const;

  int num_ranks_;
  bool write_uint16_;
  DType dtype_;
  std::vector<Buffer> buffers_;
  std::vector<Entry> entries_;
};

}  // namespace tilewire::cli
