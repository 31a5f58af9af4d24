// Writes files completely or not at all, and keeps the old file if writing fails.
// Used by the command for all of its output files, and by the tuner.
#pragma once

#include <optional>
#include <string>

#include "core/descriptor.hpp"
#include "core/output_place.hpp"

namespace tilewire {

/// Throw Error(invalid_input), "c.npy: cannot write it: Permission denied", unless the file can be written. Changes
/// nothing: truncates no file and opens no pipe. `in_pieces`: an OutputFile will write it.
void check_output(const std::string& path, bool in_pieces = false);

/// Write a file. A regular file is replaced by a rename; the new file keeps mode, owner and group. If that would lose
/// them or other hard links, or if the system refuses the rename, the file is written in place. Devices, pipes and
/// /dev/stdout are written into. Symbolic links are followed. Throws Error(invalid_input) with what was lost.
void write_output(const std::string& path, const std::string& text);

/// A temporary file with a unique name. Removed at the end unless it was renamed.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& folder, unsigned mode = 0600);
  ScratchFile(ScratchFile&& other) noexcept;
  ScratchFile& operator=(ScratchFile&&) = delete;
  ~ScratchFile();

  /// The result of the creation.
  [[nodiscard]] const SystemCall& made() const { return made_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  /// Wait for delayed errors of a file server, which reports them when a descriptor is closed.
  [[nodiscard]] SystemCall settle() const;
  /// Replace the file at `place` by this one, with that file's mode and owner.
  [[nodiscard]] SystemCall rename_to(const OutputPlace& place);

 private:
  Descriptor descriptor_;
  SystemCall made_;
  std::string path_;  ///< empty: there is no file
};

/// A file that several processes write by offset. It appears under its name only at finish(); without finish() nothing
/// remains.
class OutputFile {
 public:
  /// Throws Error(invalid_input).
  explicit OutputFile(const std::string& path);
  /// Path to write to: absolute, for processes with another working directory, unless the absolute path does not work.
  [[nodiscard]] std::string scratch() const;
  /// Move the file to its place, as write_output does.
  void finish();

 private:
  OutputPlace place_;
  std::optional<ScratchFile> scratch_;
  bool beside_ = false;  ///< the scratch file is in the folder of the target
};

}  // namespace tilewire
