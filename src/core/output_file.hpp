// Files that are written: whole or not at all, and without harm to what is there.
// Used by the command for everything that it writes, and by the tuner.
#pragma once

#include <optional>
#include <string>

#include "core/descriptor.hpp"
#include "core/output_place.hpp"

namespace tilewire {

/// Find out whether a file can be written, and leave what is there as it is: nothing is truncated, no pipe is opened.
/// `in_pieces`: by an OutputFile. Throws Error(invalid_input), "c.npy: cannot write it: Permission denied".
void check_output(const std::string& path, bool in_pieces = false);

/// Write a file. A regular file is replaced by a rename and keeps its mode, owner and group; where these or other names
/// of it would be lost, or the system refuses the rename, it is written in place. What is no regular file (device,
/// pipe, /dev/stdout) is written into. Links lead to their target. Throws Error(invalid_input) that says what is lost.
void write_output(const std::string& path, const std::string& text);

/// A temporary file under a name that nobody else has; removed at the end unless it has been renamed.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& folder, unsigned mode = 0600);
  ScratchFile(ScratchFile&& other) noexcept;
  ScratchFile& operator=(ScratchFile&&) = delete;
  ~ScratchFile();

  /// Whether there is one, or why not.
  [[nodiscard]] const SystemCall& made() const { return made_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  /// Hear of writes that a server refused later: it answers when a descriptor is closed.
  [[nodiscard]] SystemCall settle() const;
  /// Take the place of what is there, with its mode and owner.
  [[nodiscard]] SystemCall rename_to(const OutputPlace& place);

 private:
  Descriptor descriptor_;
  SystemCall made_;
  std::string path_;  ///< empty: there is none
};

/// A file that several processes write by offset. Nothing of it is seen before finish(), and nothing remains without
/// it.
class OutputFile {
 public:
  /// Throws Error(invalid_input).
  explicit OutputFile(const std::string& path);
  /// Where to write: absolute, for processes with another working directory, where an absolute name leads there.
  [[nodiscard]] std::string scratch() const;
  /// Put it in place, as write_output does.
  void finish();

 private:
  OutputPlace place_;
  std::optional<ScratchFile> scratch_;
  bool beside_ = false;  ///< in the folder of what it replaces
};

}  // namespace tilewire
