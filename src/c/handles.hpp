// The structs behind the opaque handles of the C interface.
// Made by groups.cpp and ops.cpp; handles.cpp lists the live ones.
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

/// A member of a handle: the handle is live as long as this member.
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
  std::string config;                ///< as JSON
  tilewire::c::LastError refused{};  ///< error of the last run that failed before it was enqueued
  tilewire::c::Listed listed{this, tilewire::c::HandleKind::op};
};

struct tilewire_group {
  std::unique_ptr<tilewire::Group> joined;  ///< empty if tilewire_launch owns the group
  tilewire::Group& group;
  std::string backend;
  /// NOTE: after `joined`, so that operators end before their group.
  std::vector<std::unique_ptr<tilewire_op>> ops{};
  tilewire::c::Listed listed{this, tilewire::c::HandleKind::group};
};

namespace tilewire::c {

/// Throw Error(invalid_input) unless the handle given to `function` is not null and live. NOTE: a new handle may have
/// the address of a freed one.
void require_live(const tilewire_group* group, const char* function);
void require_live(const tilewire_op* op, const char* function);

/// Throws Error(invalid_input) for a number that is no element type; `where` names the argument.
[[nodiscard]] DType dtype_of(tilewire_dtype dtype, const std::string& where);

}  // namespace tilewire::c
