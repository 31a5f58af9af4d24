// Where a path leads to, and what is there.
// Used by output_file.cpp, and by the command to tell files apart.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>

#include "core/system_call.hpp"

namespace tilewire {

/// The end of a path's symbolic links.
struct OutputPlace {
  std::string asked;              ///< as the user wrote it
  std::string path;               ///< behind all links
  SystemCall found;               ///< why it could not be looked at, but for ENOENT
  bool exists = false;            ///< with `status`
  bool opened = false;            ///< a name of an open descriptor, as /dev/stdout
  std::optional<int> descriptor;  ///< that one, where it is ours
  struct stat status {};

  [[nodiscard]] bool regular() const { return exists && S_ISREG(status.st_mode); }
  /// Whether a rename over it would lose nothing but its content: no other names, no attributes.
  [[nodiscard]] bool replaceable() const;
  /// Relative where the path is: its absolute name may be too long, or lead through a folder that is closed to us.
  [[nodiscard]] std::string folder() const;
  /// Equal for all names of one file, which need not be there. Nothing for devices such as /dev/null, which take any
  /// number of outputs.
  [[nodiscard]] std::optional<std::string> identity() const;
};

[[nodiscard]] OutputPlace output_place(const std::string& path);

}  // namespace tilewire
