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

/// "name=path" pairs, in which "{rank}" stands for the rank: then the file holds that rank's part.
using FileNames = std::map<std::string, std::string>;

/// Whether a path has "{rank}" in it: in its name, in folders, any number of times.
[[nodiscard]] bool is_per_rank(const std::string& path);
/// The path with the rank for every "{rank}".
[[nodiscard]] std::string path_of_rank(std::string path, int rank);

/// Parse "name=path" texts of --input or --output. Throws Error(invalid_input).
[[nodiscard]] FileNames parse_file_names(const std::string& flag, const std::vector<std::string>& texts);

/// Check that every input has a file, and that nothing else is named. Sizes do not matter. Throws Error(invalid_input)
/// that lists the names.
void check_buffer_names(const Problem& problem, const FileNames& inputs, const FileNames& outputs);

/// The files of one problem, checked against its buffers.
class ProblemFiles {
 public:
  /// Check that every input has a file of its type and shape, that outputs are known names, and that these and
  /// `others`, outputs of other flags, can be written and are files of their own. Throws Error(invalid_input) that
  /// names the file, what it holds and what was wanted.
  ProblemFiles(const Problem& problem, int num_ranks, const FileNames& inputs, const FileNames& outputs,
               const std::vector<FlagFile>& others, bool write_uint16);

  /// Rows of the inputs, read from the files.
  [[nodiscard]] ReadRow reader() const;
  /// Write this rank's outputs. Collective. No file appears before all of them are complete.
  void write(Group& group, const RankTensors& tensors) const;

 private:
  struct Entry {
    std::string path;  ///< with "{rank}"; empty = not asked for
    bool per_rank = false;
    std::vector<NpyReader> readers;  ///< of inputs: one per rank, or one
    Shape global;
    std::vector<Meaning> meanings;  ///< by rank, with rows and columns of the file
    Shape origin;                   ///< the row and column that rank 0's begins with, counted through several outputs
  };
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
