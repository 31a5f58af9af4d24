// Threads that sleep until a call begins, and then take its steps in any order.
// Called by HostProgram.
#include "backends/host/pool.hpp"

#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "backends/host/thread.hpp"
#include "core/text.hpp"

namespace tilewire::host {

struct Pool::Thread {
  std::atomic<bool> stop{false};
  std::thread thread;
};

Pool::Pool() : process_(getpid()) {}

Pool::~Pool() {
  disown();
  shrink(0);
}

Pool::Turn::Turn(Pool& pool) : pool_(pool) {
  require(!pool.busy_.exchange(true, std::memory_order_acquire),
          "a group serves one thread at a time: another thread is calling an operator of this group");
}

void Pool::grow(int workers) {
  const Turn turn(*this);
  disown();
  while (std::ssize(runners_) < workers) runners_.push_back(std::make_unique<TaskRunner>());
  const size_t before = threads_.size();
  const size_t wanted = std::max(before, static_cast<size_t>(std::max(workers, 1) - 1));
  // Restart the threads if the cores have changed: a thread keeps the affinity mask of its creator.
  if (std::vector<int> cores = allowed_cores(); cores != cores_) {
    shrink(0);
    cores_ = std::move(cores);
  }
  threads_.reserve(wanted);
  try {
    while (threads_.size() < wanted) {
      auto thread = std::make_unique<Thread>();
      thread->thread = start_thread([this, me = thread.get()] { serve(*me); });
      threads_.push_back(std::move(thread));
    }
  } catch (...) {
    shrink(before);
    throw;
  }
}

void Pool::disown() {
  if (getpid() == process_) return;
  // NOTE: a forked process does not have these threads; their objects can be neither joined nor destroyed.
  for (auto& thread : threads_) static_cast<void>(thread.release());
  threads_.clear();
  process_ = getpid();
}

void Pool::shrink(size_t count) {
  for (size_t i = count; i < threads_.size(); ++i) threads_[i]->stop.store(true, std::memory_order_relaxed);
  // Take a number that belongs to no step: all threads wake up and check whether they must stop.
  taken_.fetch_add(1, std::memory_order_relaxed);
  post(begun_, 1);
  while (threads_.size() > count) {
    threads_.back()->thread.join();
    threads_.pop_back();
  }
}

void Pool::run(int workers, const Step& step) {
  const int others = workers - 1;
  ensure(others <= std::ssize(threads_), "a call of {} workers in a pool of {} threads", workers, threads_.size());
  if (others == 0) return step(0, *runners_[0]);
  step_ = &step;
  first_ = begun_.value.load(std::memory_order_relaxed);
  unfinished_.store(others, std::memory_order_relaxed);
  post(begun_, static_cast<uint64_t>(others), others);
  step(0, *runners_[0]);
  // Take the steps that no thread has taken yet.
  while (help()) {
  }
  wait_for_ever(ended_, ++calls_);
}

bool Pool::help() {
  uint64_t number = taken_.load(std::memory_order_relaxed);
  do {
    if (number >= begun_.value.load(std::memory_order_acquire)) return false;
  } while (!taken_.compare_exchange_weak(number, number + 1, std::memory_order_relaxed));
  const auto index = static_cast<int>(number - first_) + 1;
  (*step_)(index, *runners_[index]);
  if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) post(ended_, 1);
  return true;
}

void Pool::serve(const Thread& me) {
  while (true) {
    const uint64_t seen = begun_.value.load(std::memory_order_acquire);
    if (me.stop.load(std::memory_order_relaxed)) return;
    if (!help()) wait_for_ever(begun_, seen + 1);
  }
}

}  // namespace tilewire::host
