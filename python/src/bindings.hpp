// What the files of the module tilewire._core share: tensors, groups and operators as Python holds them.
// Used by module.cpp, plans.cpp, tensors.cpp and groups.cpp.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <mutex>
#include <string>

#include "tilewire/tilewire.hpp"

namespace tilewire::python {

namespace nb = nanobind;

/// A tensor, and the Python object that owns its memory, or the group whose arena does.
struct View {
  Tensor tensor{};
  nb::object owner{};
  bool writable = true;
  bool on_gpu = false;
  int device = 0;  ///< number of the GPU
};

/// A group that operators and tensors of Python hold, too. One thread at a time is in it.
struct SharedGroup {
  std::unique_ptr<Group> group;
  std::mutex busy;
};

void bind_plans(nb::module_& module);
void bind_tensors(nb::module_& module);
void bind_groups(nb::module_& module);

}  // namespace tilewire::python
