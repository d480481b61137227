// Memory of one rank that the other ranks of its machine can map and read.
//
// An anonymous memory file, as large as the machine's memory but sparse: pages exist from their
// first use until what was allocated there is released. It is no file in a directory: nothing
// limits it but memory itself, and nothing stays behind when a process is killed. Its first bytes,
// the front, are the transport's; blocks are allocated behind them.
//
// A peer opens it through /proc/<process>/fd/<file> and maps it whole, for reading only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/bytes.h"
#include "runtime/device.h"

namespace ringworld {

class SharedArena {
 public:
  // `front` bytes are kept for the transport. Returns nullptr when the system does not allow it;
  // `why_not` then says why.
  static std::shared_ptr<SharedArena> create(Bytes front, std::string& why_not);
  ~SharedArena();
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;

  int file() const { return file_; }
  std::byte* begin() const { return begin_; }
  Bytes size() const { return size_; }
  Bytes front() const { return front_; }
  bool contains(const std::byte* address) const {
    return address >= begin_ && address < begin_ + size_.value;
  }

  // 64-byte aligned. Returns nullptr when there is no room. May be called from any thread.
  std::byte* allocate(Bytes bytes);
  void release(std::byte* address, Bytes bytes);

 private:
  SharedArena(int file, std::byte* begin, Bytes size, Bytes front);

  const int file_;
  std::byte* const begin_;
  const Bytes size_;
  const Bytes front_;
  std::mutex mutex_;
  std::map<std::int64_t, std::int64_t> holes_;  // free, by offset: bytes; never side by side
};

// Another rank's arena, mapped for reading.
class MappedArena {
 public:
  // Returns nullptr when it cannot be opened or mapped; `why_not` then says why.
  static std::unique_ptr<MappedArena> open(std::int64_t process, int file, Bytes size,
                                           std::string& why_not);
  ~MappedArena();
  MappedArena(const MappedArena&) = delete;
  MappedArena& operator=(const MappedArena&) = delete;

  std::byte* begin() const { return begin_; }
  Bytes size() const { return size_; }

 private:
  MappedArena(std::byte* begin, Bytes size) : begin_(begin), size_(size) {}

  std::byte* const begin_;
  const Bytes size_;
};

// A device's memory out of the arena.
std::unique_ptr<MemorySource> make_arena_memory(std::shared_ptr<SharedArena> arena);

}  // namespace ringworld
