// T3's calls that say where a GEMM's output goes, and what they say for each collective.
// Called by track_trigger.cpp, mapped_plan.cpp, the simulator's study of T3 and tests.
#include "schedules/output_map.hpp"

#include <algorithm>

#include "core/text.hpp"
#include "schedules/tile_order.hpp"

namespace tilewire {

OutputMap::OutputMap(int num_ranks, int num_chunks)
    : num_ranks_(num_ranks),
      num_chunks_(num_chunks > 0 ? num_chunks : num_ranks),
      chunks_(static_cast<size_t>(num_ranks_) * static_cast<size_t>(num_chunks_)) {}

MappedChunk& OutputMap::chunk_at(int rank, int chunk, int to) {
  const auto known = [&](int index) { return index >= 0 && index < num_ranks_; };
  require(known(rank) && known(to), "map of chunk {} of rank {} to rank {}: there are {} ranks", chunk, rank, to,
          num_ranks_);
  require(chunk >= 0 && chunk < num_chunks_, "map of chunk {} of rank {}: there are {} chunks", chunk, rank,
          num_chunks_);
  return chunks_[rank * num_chunks_ + chunk];
}

void OutputMap::add(const char* call, int rank, int chunk, const Mapping& mapping) {
  MappedChunk& mapped = chunk_at(rank, chunk, mapping.to);
  require(rank != mapping.to, "{} of chunk {}: rank {} is no remote rank of itself", call, chunk, rank);
  require(mapping.updates >= 1, "{} of chunk {}: updates_per_element = {}: want at least 1", call, chunk,
          mapping.updates);
  if (mapping.mode == WriteMode::accumulate) {
    std::erase_if(mapped.to, [](const Mapping& known) { return known.mode == WriteMode::accumulate; });
    mapped.kept = mapping.via == Mapping::Via::dma;
  }
  mapped.to.push_back(mapping);
}

void OutputMap::remote_map(int rank, int chunk, int to, WriteMode mode) {
  add("remote_map", rank, chunk, {.via = Mapping::Via::stores, .to = to, .mode = mode});
}

void OutputMap::dma_map(int rank, int chunk, int to, int updates_per_element, WriteMode mode) {
  add("dma_map", rank, chunk, {.via = Mapping::Via::dma, .to = to, .mode = mode, .updates = updates_per_element});
}

void OutputMap::drop(int rank, int chunk) { chunk_at(rank, chunk, rank).kept = false; }

void OutputMap::make_in_stage(int rank, int chunk, int stage) { chunk_at(rank, chunk, rank).stage = stage; }

const Mapping* OutputMap::sum_of(int rank, int chunk) const {
  const std::vector<Mapping>& to = at(rank, chunk).to;
  const auto found = std::ranges::find(to, WriteMode::accumulate, &Mapping::mode);
  return found == to.end() ? nullptr : &*found;
}

bool OutputMap::makes(int rank, int chunk) const {
  const MappedChunk& mapped = at(rank, chunk);
  return mapped.kept || std::ranges::find(mapped.to, Mapping::Via::stores, &Mapping::via) != mapped.to.end();
}

bool OutputMap::any_stores() const {
  return std::ranges::any_of(chunks_, [](const MappedChunk& mapped) {
    return std::ranges::find(mapped.to, WriteMode::store, &Mapping::mode) != mapped.to.end();
  });
}

int OutputMap::senders(int rank, int chunk, WriteMode mode) const {
  int count = 0;
  for (int sender = 0; sender < num_ranks_; ++sender) {
    count += static_cast<int>(std::ranges::count_if(
        at(sender, chunk).to, [&](const Mapping& sent) { return sent.to == rank && sent.mode == mode; }));
  }
  return count;
}

int OutputMap::updates_seen(int rank, int chunk) const {
  return (at(rank, chunk).kept ? 1 : 0) + senders(rank, chunk, WriteMode::accumulate);
}

int OutputMap::stores_seen(int rank, int chunk) const { return senders(rank, chunk, WriteMode::store); }

void OutputMap::validate() const {
  for (int rank = 0; rank < num_ranks_; ++rank) {
    for (int chunk = 0; chunk < num_chunks_; ++chunk) {
      const int stores = stores_seen(rank, chunk);
      require(stores <= 1, "chunk {} is stored on rank {} by {} ranks: want at most 1", chunk, rank, stores);
      for (const Mapping& sent : at(rank, chunk).to) {
        if (sent.via != Mapping::Via::dma) continue;
        const int seen = sent.mode == WriteMode::store && stores > 0 ? stores : updates_seen(rank, chunk);
        require(sent.updates == seen, "dma_map of chunk {} on rank {}: waits for {} updates per element, {} come",
                chunk, rank, sent.updates, seen);
      }
    }
  }
}

OutputMap ring_reduce_scatter(int num_ranks) {
  OutputMap map(num_ranks);
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int next = (rank + 1) % num_ranks;
    for (int stage = 0; stage < num_ranks; ++stage) {
      const int chunk = (rank - 1 - stage + 2 * num_ranks) % num_ranks;
      map.make_in_stage(rank, chunk, stage);
      if (chunk == rank) continue;
      stage == 0 ? map.remote_map(rank, chunk, next) : map.dma_map(rank, chunk, next, 2);
    }
  }
  return map;
}

OutputMap direct_reduce_scatter(int num_ranks) {
  OutputMap map(num_ranks);
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (int stage = 0; stage < num_ranks; ++stage) {
      const int chunk = (rank + 1 + stage) % num_ranks;
      map.make_in_stage(rank, chunk, stage);
      if (chunk != rank) map.remote_map(rank, chunk, chunk);
    }
  }
  return map;
}

OutputMap ring_all_reduce(int num_ranks) {
  OutputMap map = ring_reduce_scatter(num_ranks);
  for (int owner = 0; owner < num_ranks; ++owner) {
    for (int step = 0; step + 1 < num_ranks; ++step) {
      const int rank = (owner + step) % num_ranks;
      map.dma_map(rank, owner, (rank + 1) % num_ranks, step == 0 ? 2 : 1, WriteMode::store);
    }
  }
  return map;
}

OutputMap direct_all_reduce(int num_ranks) {
  OutputMap map = direct_reduce_scatter(num_ranks);
  for (int owner = 0; owner < num_ranks; ++owner) {
    for (const int peer : peers_after(num_ranks, owner)) map.dma_map(owner, owner, peer, num_ranks, WriteMode::store);
  }
  return map;
}

namespace {

/// Rank r makes chunk r and nothing else.
OutputMap own_chunks(int num_ranks) {
  OutputMap map(num_ranks);
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (const int peer : peers_after(num_ranks, rank)) map.drop(rank, peer);
  }
  return map;
}

}  // namespace

OutputMap ring_all_gather(int num_ranks) {
  OutputMap map = own_chunks(num_ranks);
  for (int owner = 0; owner < num_ranks; ++owner) {
    for (int step = 0; step + 1 < num_ranks; ++step) {
      const int rank = (owner + step) % num_ranks;
      const int next = (rank + 1) % num_ranks;
      step == 0 ? map.remote_map(rank, owner, next, WriteMode::store)
                : map.dma_map(rank, owner, next, 1, WriteMode::store);
    }
  }
  return map;
}

OutputMap direct_all_gather(int num_ranks) {
  OutputMap map = own_chunks(num_ranks);
  for (int owner = 0; owner < num_ranks; ++owner) {
    for (const int peer : peers_after(num_ranks, owner)) map.remote_map(owner, owner, peer, WriteMode::store);
  }
  return map;
}

OutputMap all_to_all(int num_ranks) {
  OutputMap map(num_ranks, num_ranks * num_ranks);
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (int chunk = 0; chunk < map.num_chunks(); ++chunk) {
      if (chunk != rank * num_ranks + rank) map.drop(rank, chunk);
    }
    for (int stage = 0; stage < num_ranks; ++stage) {
      const int to = (rank + 1 + stage) % num_ranks;
      map.make_in_stage(rank, rank * num_ranks + to, stage);
      if (to != rank) map.remote_map(rank, rank * num_ranks + to, to, WriteMode::store);
    }
  }
  return map;
}

}  // namespace tilewire
