// What the opaque handles of the C interface hold.
// Made by groups.cpp and ops.cpp; handles.cpp knows which are live.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "c/errors.hpp"
#include "tilewire/c.h"
#include "tilewire/group.hpp"
#include "tilewire/op.hpp"

namespace tilewire::c {

enum class HandleKind { group, op };

/// A member of a handle: the handle is live as long as it.
class Listed {
 public:
  Listed(const void* handle, HandleKind kind);
  Listed(const Listed&) = delete;
  Listed& operator=(const Listed&) = delete;
  ~Listed();

 private:
  const void* handle_;
};

}  // namespace tilewire::c

struct tilewire_op {
  tilewire_group* group;
  tilewire::Op op;
  std::string config;                ///< JSON
  tilewire::c::LastError refused{};  ///< how the last run failed at once
  tilewire::c::Listed listed{this, tilewire::c::HandleKind::op};
};

struct tilewire_group {
  std::unique_ptr<tilewire::Group> joined;  ///< empty where tilewire_launch owns the group
  tilewire::Group& group;
  std::string backend;
  /// NOTE: after `joined`, so that operators end before their group.
  std::vector<std::unique_ptr<tilewire_op>> ops{};
  tilewire::c::Listed listed{this, tilewire::c::HandleKind::group};
};

namespace tilewire::c {

/// Throw Error(invalid_input) unless the handle that `function` was given is there, and live. NOTE: the address of one
/// that is gone may be another's by now.
void require_live(const tilewire_group* group, const char* function);
void require_live(const tilewire_op* op, const char* function);

/// Throws Error(invalid_input) for numbers that are no element type; `where` says whose.
[[nodiscard]] DType dtype_of(tilewire_dtype dtype, const std::string& where);

}  // namespace tilewire::c
