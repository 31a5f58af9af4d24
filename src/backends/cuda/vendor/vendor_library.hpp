// A vendor's library that is loaded at run time: its entry points by name, or what is missing.
// Used by cublaslt.cpp and nccl.cpp.
#pragma once

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>
#include <string>

namespace tilewire::cuda {

class VendorLibrary {
 public:
  /// Load the first of `names` that can be loaded, and never unload it: its work on the device and its threads may
  /// outlive this object. `title`: the library's usual name.
  VendorLibrary(const char* title, std::span<const char* const> names) {
    for (const char* name : names) {
      handle_ = dlopen(name, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
      loaded_ = name;
      if (handle_ != nullptr) return;
    }
    missing_ = fmt::format("{} cannot be loaded ({})", title, fmt::join(names, " or "));
  }
  VendorLibrary(const VendorLibrary&) = delete;
  VendorLibrary& operator=(const VendorLibrary&) = delete;
  ~VendorLibrary() {
    if (handle_ != nullptr) dlclose(handle_);
  }

  /// Set a pointer to the entry point of this name; null if there is none.
  template <class Function>
  void find(Function& function, const char* name) {
    if (handle_ == nullptr) return;
    function = reinterpret_cast<Function>(dlsym(handle_, name));
    if (function == nullptr && missing_.empty()) missing_ = fmt::format("{} has no {}", loaded_, name);
  }
  /// Why the library cannot be called; empty = it can.
  [[nodiscard]] const std::string& missing() const { return missing_; }

 private:
  void* handle_ = nullptr;
  const char* loaded_ = nullptr;
  std::string missing_;
};

}  // namespace tilewire::cuda
