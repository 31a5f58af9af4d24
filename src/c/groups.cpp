// Groups and their memory for C: join, launch, barrier, allocate.
// Called through tilewire/c.h.
#include "c/errors.hpp"
#include "c/handles.hpp"
#include "c/options.hpp"
#include "tilewire/env.hpp"
#include "tilewire/spi/backend.hpp"

using namespace tilewire;
using c::guarded;
using c::require_live;
using c::require_pointer;

namespace {

/// Sizes of the structs' first versions. NOTE: a struct must not end with padding: a later version would read it as a
/// field.
constexpr size_t kLeastJoin = offsetof(tilewire_join_options, sms) + sizeof(int32_t);
constexpr size_t kLeastLaunch = offsetof(tilewire_launch_options, sms) + sizeof(int32_t);
static_assert(kLeastJoin == sizeof(tilewire_join_options) && kLeastLaunch == sizeof(tilewire_launch_options));

std::unique_ptr<tilewire_group> new_handle(std::unique_ptr<Group> joined, Group& group) {
  return std::unique_ptr<tilewire_group>(new tilewire_group{std::move(joined), group, group.backend()});
}

CallOrder order_of(int32_t order) {
  require(order == 0 || order == TILEWIRE_ORDER_STREAM, "order = {}: want 0 or TILEWIRE_ORDER_STREAM", order);
  return order == 0 ? CallOrder::any : CallOrder::stream;
}

JoinOptions to_cpp(const tilewire_join_options& options) {
  return {.rank = options.rank,
          .num_ranks = options.num_ranks,
          .job = options.job != nullptr ? options.job : env::job(),
          .arena_bytes = options.arena_bytes,
          .timeout_s = options.timeout_s,
          .local_rank = options.local_rank,
          .order = order_of(options.order),
          .sms = options.sms};
}

tilewire_join_options to_c(const JoinOptions& options) {
  return {.size = sizeof(tilewire_join_options),
          .rank = options.rank,
          .num_ranks = options.num_ranks,
          .local_rank = options.local_rank,
          .job = nullptr,
          .arena_bytes = options.arena_bytes,
          .timeout_s = options.timeout_s,
          .order = options.order == CallOrder::stream ? TILEWIRE_ORDER_STREAM : 0,
          .sms = options.sms};
}

LaunchOptions to_cpp(const tilewire_launch_options& options) {
  LaunchOptions to;
  to.threads = options.threads != 0;
  if (options.backend != nullptr) to.backend = options.backend;
  if (options.arena_bytes != 0) to.arena_bytes = options.arena_bytes;
  if (options.timeout_s != 0) to.timeout_s = options.timeout_s;
  to.order = order_of(options.order);
  to.sms = options.sms;
  return to;
}

/// Convert the status that a rank's function returned to the exception for launch.
Error error_of(int rank, tilewire_status status) {
  const c::LastError& last = c::last_error();
  if (last.status == status && !last.text.empty()) return {c::kind_of(status), last.text};
  const bool known = status > TILEWIRE_OK && status <= TILEWIRE_INTERNAL;
  if (known)
    return {c::kind_of(status),
            fmt::format("rank {}'s function returned {} ({})", rank, status, tilewire_status_name(status))};
  return {ErrorKind::invalid_input, fmt::format("rank {}'s function returned {}, which is no status", rank, status)};
}

}  // namespace

extern "C" {

tilewire_status tilewire_check_backend(const char* backend) {
  return guarded([&] {
    require_pointer(backend, "tilewire_check_backend", "backend");
    static_cast<void>(available_backend(backend));
  });
}

tilewire_status tilewire_join_options_default(tilewire_join_options* options) {
  return guarded([&] {
    require_pointer(options, "tilewire_join_options_default", "options");
    c::write_options(to_c({}), *options, kLeastJoin, "tilewire_join_options_default");
  });
}

tilewire_status tilewire_join_options_from_env(tilewire_join_options* options) {
  return guarded([&] {
    require_pointer(options, "tilewire_join_options_from_env", "options");
    const auto fill = [&](const tilewire_join_options& with) {
      c::write_options(with, *options, kLeastJoin, "tilewire_join_options_from_env");
    };
    fill({});
    fill(to_c(join_options_from_env()));
  });
}

tilewire_status tilewire_join(const char* backend, const tilewire_join_options* options, tilewire_group** group) {
  return guarded([&] {
    require_pointer(group, "tilewire_join", "group");
    *group = nullptr;
    require_pointer(backend, "tilewire_join", "backend");
    require_pointer(options, "tilewire_join", "options");
    std::unique_ptr<Group> joined = join(backend, to_cpp(c::read_options(*options, kLeastJoin, "tilewire_join")));
    Group& inside = *joined;
    *group = new_handle(std::move(joined), inside).release();
  });
}

tilewire_status tilewire_leave(tilewire_group* group) {
  return guarded([&] {
    if (group == nullptr) return;
    require_live(group, "tilewire_leave");
    require(group->joined != nullptr, "tilewire_leave: tilewire_launch owns this group and ends it");
    require(group->ops.empty(), "tilewire_leave: {} operators of the group are not freed", group->ops.size());
    delete group;
  });
}

tilewire_status tilewire_launch(int32_t num_ranks, const tilewire_launch_options* options, tilewire_rank_function body,
                                void* user) {
  return guarded([&] {
    require(body != nullptr, "tilewire_launch: body is a null pointer");
    const tilewire_launch_options known =
        options != nullptr ? c::read_options(*options, kLeastLaunch, "tilewire_launch") : tilewire_launch_options{};
    launch(num_ranks, to_cpp(known), [&](Group& inside) {
      // Clear the last error that a child process inherits from its parent's thread.
      c::last_error() = {};
      const auto group = new_handle(nullptr, inside);
      if (const tilewire_status status = body(group.get(), user); status != TILEWIRE_OK) {
        // Report before operators are freed: freeing waits for running calls, which may wait for peers.
        const Error error = error_of(inside.team().rank, status);
        inside.fail_with(error);
        throw Error(error);
      }
      require(group->ops.empty(), "tilewire_launch: the function of rank {} has not freed {} operators",
              inside.team().rank, group->ops.size());
    });
  });
}

int32_t tilewire_rank(const tilewire_group* group) {
  int32_t rank = -1;
  guarded([&] {
    require_live(group, "tilewire_rank");
    rank = group->group.team().rank;
  });
  return rank;
}

int32_t tilewire_num_ranks(const tilewire_group* group) {
  int32_t num_ranks = -1;
  guarded([&] {
    require_live(group, "tilewire_num_ranks");
    num_ranks = group->group.team().num_ranks;
  });
  return num_ranks;
}

const char* tilewire_backend(const tilewire_group* group) {
  const char* backend = nullptr;
  guarded([&] {
    require_live(group, "tilewire_backend");
    backend = group->backend.c_str();
  });
  return backend;
}

tilewire_status tilewire_barrier(tilewire_group* group) {
  return guarded([&] {
    require_live(group, "tilewire_barrier");
    group->group.barrier();
  });
}

tilewire_status tilewire_fail(tilewire_group* group, tilewire_status status, const char* text) {
  return guarded([&] {
    require_live(group, "tilewire_fail");
    require_pointer(text, "tilewire_fail", "text");
    const Error error(c::kind_of(status), text);
    group->group.fail_with(error);
    throw error;
  });
}

tilewire_status tilewire_allocate(tilewire_group* group, tilewire_dtype dtype, int64_t rows, int64_t cols,
                                  tilewire_tensor* tensor) {
  return guarded([&] {
    require_pointer(tensor, "tilewire_allocate", "tensor");
    *tensor = {};
    require_live(group, "tilewire_allocate");
    const Tensor made = group->group.allocate(c::dtype_of(dtype, "tilewire_allocate"), rows, cols);
    *tensor = {made.data, dtype, made.rows, made.cols, made.row_stride};
  });
}

tilewire_status tilewire_free(tilewire_group* group, tilewire_tensor* tensor) {
  return guarded([&] {
    require_live(group, "tilewire_free");
    require_pointer(tensor, "tilewire_free", "tensor");
    const DType dtype = c::dtype_of(tensor->dtype, "tilewire_free");
    group->group.free({tensor->data, dtype, tensor->rows, tensor->cols, tensor->row_stride});
    *tensor = {};
  });
}

tilewire_status tilewire_copy(tilewire_group* group, void* to, const void* from, int64_t bytes) {
  return guarded([&] {
    require_live(group, "tilewire_copy");
    require(bytes >= 0, "tilewire_copy: {} bytes", bytes);
    if (bytes == 0) return;
    require_pointer(to, "tilewire_copy", "to");
    require_pointer(from, "tilewire_copy", "from");
    group->group.copy(to, from, bytes);
  });
}
}
