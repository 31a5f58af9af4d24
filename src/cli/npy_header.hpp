// The dictionary in the header of .npy files, as numpy reads it.
// Used by npy.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tilewire::cli {

/// The content of the dictionary.
struct NpyDictionary {
  std::string descr;  ///< without quotes
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

/// Parse the dictionary as Python writes it, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }": keys in any
/// order, both kinds of quotes, any spaces, Python 2's "4L". Throws Error(invalid_input) that names the file and the
/// place of the fault.
[[nodiscard]] NpyDictionary parse_npy_dictionary(const std::string& path, const std::string& text);

}  // namespace tilewire::cli
