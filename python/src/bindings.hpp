// Types that the files of the module tilewire._core share: tensors, groups and operators as Python objects.
// Used by module.cpp, plans.cpp, tensors.cpp, groups.cpp and torch/.
#pragma once

#include <nanobind/nanobind.h>
// NOTE: all type casters of nanobind, so that every source has the same: a source without one would compile and convert
// differently (ODR).
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "core/text.hpp"
#include "tilewire/tilewire.hpp"

namespace tilewire::python {

namespace nb = nanobind;

/// A tensor, with the Python object that owns its memory (or the group whose arena does).
struct View {
  Tensor tensor{};
  nb::object owner{};
  bool writable = true;
  bool on_gpu = false;
  int device = 0;  ///< number of the GPU in this process
};

/// A group that Python's operators and tensors keep alive. Only one thread at a time may use it.
struct SharedGroup {
  std::unique_ptr<Group> group;
  std::mutex busy;
};

/// One rank's membership, until Python leaves the group.
class PyGroup {
 public:
  explicit PyGroup(std::unique_ptr<Group> group) : shared_(std::make_shared<SharedGroup>()) {
    shared_->group = std::move(group);
  }

  [[nodiscard]] const std::shared_ptr<SharedGroup>& shared() const {
    require(shared_ != nullptr, "the group has been left");
    return shared_;
  }
  /// Call `call` with the group, without the GIL and with exclusive access to the group.
  template <class Call>
  auto in(const Call& call) const {
    const std::shared_ptr<SharedGroup> shared = this->shared();
    const nb::gil_scoped_release without_gil;
    const std::scoped_lock alone(shared->busy);
    return call(*shared->group);
  }
  void leave() {
    if (shared_ == nullptr) return;
    const nb::gil_scoped_release without_gil;
    shared_.reset();
  }

 private:
  std::shared_ptr<SharedGroup> shared_;
};

void bind_plans(nb::module_& module);
void bind_tensors(nb::module_& module);
void bind_groups(nb::module_& module);
void bind_torch(nb::module_& module);

}  // namespace tilewire::python
