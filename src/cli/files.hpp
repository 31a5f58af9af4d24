// A problem's buffers in .npy files: one global matrix, or one file per rank.
// Used by `tilewire run`.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/flag_files.hpp"
#include "cli/npy.hpp"
#include "core/output_file.hpp"
#include "operators/tensors.hpp"
#include "tilewire/problem.hpp"

namespace tilewire::cli {

/// "name=path" pairs. "{rank}" in a path stands for the rank; such a file holds the part of that rank.
using FileNames = std::map<std::string, std::string>;

/// Whether a path contains "{rank}", in its name or its folders, any number of times.
[[nodiscard]] bool is_per_rank(const std::string& path);
/// The path with each "{rank}" replaced by the rank.
[[nodiscard]] std::string path_of_rank(std::string path, int rank);

/// Parse "name=path" texts of --input or --output. Throws Error(invalid_input).
[[nodiscard]] FileNames parse_file_names(const std::string& flag, const std::vector<std::string>& texts);

/// Check that every input has a file, and that all names are known. Sizes do not matter. Throws Error(invalid_input)
/// that lists the names.
void check_buffer_names(const Problem& problem, const FileNames& inputs, const FileNames& outputs);

/// The files of one problem, checked against its buffers.
class ProblemFiles {
 public:
  /// Check that every input has a file of its type and shape, and that outputs have known names. Check that these and
  /// `others`, the outputs of other flags, can be written and are distinct files. Throws Error(invalid_input) that
  /// names the file, its content and what was wanted.
  ProblemFiles(const Problem& problem, int num_ranks, const FileNames& inputs, const FileNames& outputs,
               const std::vector<FlagFile>& others, bool write_uint16);

  /// Reads rows of the inputs from the files.
  [[nodiscard]] ReadRow reader() const;
  /// Write this rank's outputs. Collective. No file appears before all of them are complete.
  void write(Group& group, const RankTensors& tensors) const;

 private:
  struct Entry {
    std::string path;  ///< with "{rank}"; empty = not given
    bool per_rank = false;
    std::vector<NpyReader> readers;  ///< of inputs: one per rank, or one
    Shape global;
    std::vector<Meaning> meanings;  ///< by rank, the first of each, with rows and columns of the file
    Shape origin;                   ///< row and column at which rank 0's part begins, counted through several outputs
    int64_t elements = 0;           ///< of all different parts; fewer than `global` has if the file would have gaps
    bool in_blocks = false;         ///< a rank's rows have several meanings, or each rank has groups of its own
  };
  /// Whether one file can hold the parts of all ranks.
  [[nodiscard]] static bool is_one_matrix(const Entry& entry) {
    return !entry.in_blocks && entry.elements == entry.global.rows * entry.global.cols;
  }
  void check_input(const Entry& entry, const Buffer& buffer);
  void check_output_files(const FileNames& outputs, const std::vector<FlagFile>& others) const;
  void write_pieces(Group& group, const Entry& entry, const Buffer& buffer, const Tensor& tensor,
                    std::vector<OutputFile>& made) const;

  int num_ranks_;
  bool write_uint16_;
  DType dtype_;
  std::vector<Buffer> buffers_;
  std::vector<Entry> entries_;
};

}  // namespace tilewire::cli
