// Resolves a path to the file that it leads to.
// Used by output_file.cpp, and by the command to tell files apart.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>

#include "core/system_call.hpp"

namespace tilewire {

/// A path with all symbolic links resolved, and the state of its file.
struct OutputPlace {
  std::string asked;              ///< path as the user wrote it
  std::string path;               ///< path after all links
  SystemCall found;               ///< error of the lookup, except ENOENT
  bool exists = false;            ///< the file exists, and `status` is set
  bool opened = false;            ///< the path is a name of an open descriptor, such as /dev/stdout
  std::optional<int> descriptor;  ///< that descriptor, if this process has it
  struct stat status {};

  [[nodiscard]] bool regular() const { return exists && S_ISREG(status.st_mode); }
  /// Whether a rename over the file loses only its content: it has no other hard links and no user attributes.
  [[nodiscard]] bool replaceable() const;
  /// Folder of the file. Relative if the path is: the absolute name may be too long, or may pass a folder without
  /// access.
  [[nodiscard]] std::string folder() const;
  /// A text that is equal for all names of one file, which need not exist. Nothing for character devices such as
  /// /dev/null, which can take several outputs.
  [[nodiscard]] std::optional<std::string> identity() const;
};

[[nodiscard]] OutputPlace output_place(const std::string& path);

}  // namespace tilewire
