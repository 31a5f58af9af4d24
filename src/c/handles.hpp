// What the opaque handles of the C interface hold.
// Made by groups.cpp and ops.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "c/errors.hpp"
#include "tilewire/backend.hpp"
#include "tilewire/c.h"
#include "tilewire/op.hpp"

struct tilewire_op {
  tilewire_group* group;
  tilewire::Op op;
  std::string config;                ///< JSON
  tilewire::c::LastError refused{};  ///< how the last run failed at once
};

struct tilewire_group {
  std::unique_ptr<tilewire::Group> joined;  ///< empty where tilewire_launch owns the group
  tilewire::Group& group;
  std::string backend;
  /// NOTE: after `joined`, so that operators end before their group.
  std::vector<std::unique_ptr<tilewire_op>> ops{};
};

namespace tilewire::c {

/// Throws Error(invalid_input) for numbers that are no element type; `where` says whose.
[[nodiscard]] DType dtype_of(tilewire_dtype dtype, const std::string& where);

}  // namespace tilewire::c
