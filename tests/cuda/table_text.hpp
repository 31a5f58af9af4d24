// Every rank's tables as text, over made-up addresses, with fake tensor maps that contain their arguments. Included by
// one
// file of a program. Used by print_tables.cpp and bases_test.cpp.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <vector>

#include "backends/cuda/runtime/driver.hpp"
#include "backends/cuda/tables/lane_tables.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/spi/lower.hpp"

namespace tilewire::cuda {

/// The arguments of a map, stored in its place.
struct Asked {
  const void* data;
  uint32_t type, rank;
  uint64_t dims[2];
  uint64_t stride;
  uint32_t box[2];
  uint32_t swizzle, promotion;
};
static_assert(sizeof(Asked) <= sizeof(CUtensorMap));

inline CUresult CUDAAPI note(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* data,
                             const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                             const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                             CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill) {
  const Asked asked{data,
                    static_cast<uint32_t>(type),
                    rank,
                    {dims[0], dims[1]},
                    strides[0],
                    {box[0], box[1]},
                    static_cast<uint32_t>(swizzle),
                    static_cast<uint32_t>(promotion)};
  std::memset(map, 0, sizeof *map);
  std::memcpy(map, &asked, sizeof asked);
  return CUDA_SUCCESS;
}

/// Resolves relative addresses with these bases.
class Text {
 public:
  explicit Text(const Bases& bases) : bases_(bases) {}
  template <class... Values>
  void line(const char* name, Values... values) {
    text_ += name;
    (add(values), ...);
    text_ += '\n';
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  template <class Value>
  void add(Value value) {
    if constexpr (std::is_pointer_v<Value>) {
      text_ += fmt::format(" {:x}", resolve(bases_, reinterpret_cast<uint64_t>(value)));
    } else if constexpr (std::is_enum_v<Value>) {
      text_ += fmt::format(" {}", static_cast<uint64_t>(value));
    } else {
      text_ += fmt::format(" {}", value);
    }
  }
  Bases bases_;
  std::string text_;
};

inline void print(Text& text, const HostTable& t) {
  for (const TileRecord& x : t.tiles) {
    text.line("tile", x.a_row, x.b_col, x.k_begin, x.k_steps, x.a_map, x.b_map, x.rows, x.cols, x.first_wait,
              x.first_post, x.first_write, x.num_waits, x.num_posts, x.num_writes, x.split, x.flags, x.task,
              x.num_steps, x.first_partial, x.num_partials, x.own_partial, x.num_partial_waits);
  }
  for (const WaitRecord& x : t.waits) text.line("wait", x.signal, x.at_least, x.total, x.index, x.step);
  for (const PostRecord& x : t.posts) text.line("post", x.signal, x.add, x.remote);
  for (const WriteRecord& x : t.writes) {
    text.line("write", x.to, x.ld, x.row, x.col, x.map, x.first_row, x.rows, x.cols, x.mode, x.via, x.rest_map);
  }
  for (const PartialRecord& x : t.parts) text.line("part", x.row, x.col, x.map, x.task);
  for (size_t i = 0; i < t.maps.size(); ++i) {
    Asked x{};
    std::memcpy(&x, &t.maps[i], sizeof x);
    for (const MovingMap& map : t.moving) {
      if (map.number != i) continue;
      const CUtensorMap made = map.make(map.matrix);
      std::memcpy(&x, &made, sizeof x);
    }
    text.line("map", x.data, x.type, x.rank, x.dims[0], x.dims[1], x.stride, x.box[0], x.box[1], x.swizzle,
              x.promotion);
  }
  for (const RowSplit& x : t.splits) text.line("split", x.row, x.map, x.first);
  if (!t.tiles.empty()) text.line("cache", t.cache_hints.a, t.cache_hints.b);
}

inline void print(Text& text, const HostWorkerTable& w) {
  for (const LaneRecord& x : w.lanes) {
    text.line("lane", x.first_op, x.num_ops, x.ctas, x.serial, x.sync_only, x.helped, x.warpgroups, x.after,
              x.progress);
  }
  for (const OpRecord& x : w.ops) {
    text.line("step", x.code, false, x.b_is_kn, x.num_sources, x.num_targets, x.num_epilogue, x.polls, x.num_waits,
              x.num_posts, x.rows, x.cols, x.depth, x.task, x.value, x.doorbell, x.first_source, x.first_target,
              x.first_epilogue, x.first_wait, x.first_post);
  }
  for (const SourceRecord& x : w.sources) text.line("source", x.data, x.ld, x.dtype, 1.0F);
  for (const TargetRecord& x : w.targets) text.line("target", x.data, x.ld, x.first_row, x.rows, x.dtype, x.mode);
  for (const EpilogueRecord& x : w.epilogue) text.line("epilogue", x.kind, x.dtype, x.value, x.operand, x.ld);
  for (const WaitRecord& x : w.waits) text.line("wait", x.signal, x.at_least, x.total, x.index, x.step);
  for (const PostRecord& x : w.posts) text.line("post", x.signal, x.add, x.remote);
  text.line("late", w.helper_ctas);
}

inline void print(Text& text, const Preamble& o) {
  text.line("opening", o.num_posts, o.task, o.has_task, o.notes_begin, o.waited);
  for (uint32_t i = 0; i < o.num_posts; ++i) text.line("post", o.posts[i].signal, o.posts[i].add, o.posts[i].remote);
}

inline void print(Text& text, const StreamWork& work) {
  text.line("work", work.stream, work.lane, work.task, work.doorbell, work.what.index(), work.follows,
            work.notified_aside);
  if (const auto* x = std::get_if<StreamCopy>(&work.what))
    text.line("copy", x->to, x->from, x->to_pitch, x->from_pitch, x->width, x->rows);
  if (const auto* x = std::get_if<LibraryGemm>(&work.what)) {
    text.line("gemm", x->m, x->n, x->k, x->parts, x->next_part, x->a, x->b, x->c, x->bias, x->lda, x->ldb, x->ldc,
              x->dtype, x->out_dtype, x->bias_dtype, false, x->b_is_kn, x->relu, x->tf32, x->sms);
  }
  if (const auto* x = std::get_if<LibraryCollective>(&work.what))
    text.line("collective", x->kind, x->from, x->to, x->from_elements, x->to_elements, x->dtype);
  if (const auto* x = std::get_if<StreamWorkers>(&work.what)) text.line("walk", x->lane);
}

template <class T>
T* made_up(uintptr_t at) {
  return reinterpret_cast<T*>(at);
}

/// `relative`: callers' tensors are at relative addresses, which the text resolves.
inline std::string tables_text(const Plan& made, int rank, bool streams, bool traced, bool relative = false) {
  Target target = gpu_target("h200", made.team.num_ranks, 132);
  target.streams = streams;
  const Plan plan = lower(made, target).plan;
  Addresses addresses;
  Bases bases;
  for (int owner = 0; owner < plan.team.num_ranks; ++owner) {
    uintptr_t at = (uintptr_t{1} << 40) + (static_cast<uintptr_t>(owner) << 36);
    uint32_t number = 0;
    for (const Buffer& buffer : plan.buffers) {
      const bool callers = buffer.scope == Scope::input || buffer.scope == Scope::output;
      const uintptr_t mine = at + (static_cast<uintptr_t>(rank) << 36) - (static_cast<uintptr_t>(owner) << 36);
      uintptr_t named = at;
      if (relative && callers) {
        ++number;
        bases.of[number] = base_of(number, mine);
        if (owner == rank || buffer.in_arena) named = relative_address(number, mine) + (at - mine);
      }
      addresses.bases.push_back({made_up<std::byte>(named), shape_on(buffer, owner).cols});
      at += uintptr_t{1} << 32;
    }
  }
  addresses.signal = [&](const Signal& signal) { return made_up<uint64_t>(0x1000 + 32 * signal_id(plan, signal)); };
  addresses.progress = made_up<uint64_t>(uintptr_t{1} << 32);
  addresses.doorbells = made_up<Doorbell>(uintptr_t{1} << 33);
  Plan mine = plan;
  std::erase_if(mine.lanes, [&](const Lane& lane) { return lane.rank != rank; });
  const RankTables tables = make_tables(mine, rank, addresses, signal_totals(plan), {132, streams, traced});
  if (relative && !serves_any_address(tables)) return {};
  Text text(bases);
  print(text, tables.gemm);
  if (!tables.gemm.tiles.empty())
    text.line("kind", tables.kind.dtype, tables.kind.b_is_kn, tables.kind.shape.m, tables.kind.shape.n,
              tables.kind.sums);
  text.line("ctas", tables.gemm_ctas, tables.cluster.m, tables.cluster.n, tables.cluster.k);
  print(text, tables.workers);
  for (const StreamWork& work : tables.works) print(text, work);
  for (const StreamUse& use : tables.streams) text.line("stream", use.urgent, use.has_notifier);
  text.line("apart", tables.lanes_apart, tables.stream_ordered);
  print(text, tables.first);
  print(text, tables.preamble);
  for (const TaskName& name : tables.names) text.line("name", name.lane, name.task, name.again, name.sum);
  return text.take();
}

/// NOTE: the linker takes this one instead of the library's, which needs a driver.
Driver load_driver() {
  Driver driver;
  driver.tensor_map_encode_tiled = note;
  return driver;
}

}  // namespace tilewire::cuda
