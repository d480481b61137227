#include "runtime/shared_arena.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/error.h"

namespace ringworld {
namespace {

constexpr std::int64_t alignment = 64;
constexpr std::int64_t huge_page = 2 << 20;
// Blocks from here on begin on a page of their own, and their pages go back when they are released.
constexpr std::int64_t paged_from = 256 * 1024;

std::int64_t rounded(std::int64_t bytes, std::int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::string reason(const char* call) {
  return fmt::format("{}: {}", call, std::strerror(errno));
}

// The alignment of a block: on huge pages when it has some, so that one is never shared.
std::int64_t alignment_of(std::int64_t bytes) {
  return bytes >= 4 * huge_page ? huge_page : bytes >= paged_from ? 4096 : alignment;
}

// `bytes` of address space at a multiple of `unit`; nullptr when there are none.
std::byte* reserve(std::int64_t bytes, std::int64_t unit) {
  void* mapped = mmap(nullptr, static_cast<std::size_t>(bytes + unit), PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    return nullptr;
  }
  auto* all = static_cast<std::byte*>(mapped);
  std::byte* begin = all + (unit - reinterpret_cast<std::intptr_t>(all) % unit) % unit;
  if (begin > all) {
    munmap(all, static_cast<std::size_t>(begin - all));
  }
  munmap(begin + bytes, static_cast<std::size_t>(all + unit - begin));
  return begin;
}

// The file at its own place in the address space; nullptr when that is refused.
std::byte* map_file(int file, std::int64_t bytes, int protection) {
  std::byte* place = reserve(bytes, huge_page);
  if (place == nullptr) {
    return nullptr;
  }
  void* mapped = mmap(place, static_cast<std::size_t>(bytes), protection,
                      MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file, 0);
  if (mapped == MAP_FAILED) {
    const int failure = errno;
    munmap(place, static_cast<std::size_t>(bytes));
    errno = failure;
    return nullptr;
  }
#ifdef MADV_HUGEPAGE
  madvise(mapped, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
#endif
#ifdef MADV_DONTDUMP
  madvise(mapped, static_cast<std::size_t>(bytes), MADV_DONTDUMP);
#endif
  return place;
}

class ArenaMemory final : public MemorySource {
 public:
  explicit ArenaMemory(std::shared_ptr<SharedArena> arena) : arena_(std::move(arena)) {}

  std::byte* allocate(Bytes bytes) override {
    std::byte* address = arena_->allocate(bytes);
    if (address == nullptr) {
      throw OutOfDeviceMemory(fmt::format(
          "this machine has no {} left for a virtual GPU; run fewer ranks or a smaller model",
          to_string(bytes)));
    }
    return address;
  }

  void release(std::byte* address, Bytes bytes) override { arena_->release(address, bytes); }

 private:
  const std::shared_ptr<SharedArena> arena_;
};

}  // namespace

// --- A rank's own --------------------------------------------------------------------------------

std::shared_ptr<SharedArena> SharedArena::create(Bytes front, std::string& why_not) {
#ifdef __linux__
  const int file = memfd_create("ringworld", MFD_CLOEXEC);
  if (file < 0) {
    why_not = reason("memfd_create");
    return nullptr;
  }
  const std::int64_t memory = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  const std::int64_t front_size = rounded(front.value, huge_page);
  const std::int64_t size = front_size + rounded(memory, huge_page);
  rlimit largest_file{};
  if (getrlimit(RLIMIT_FSIZE, &largest_file) == 0 &&
      largest_file.rlim_cur < static_cast<rlim_t>(size)) {  // ftruncate would end the process
    why_not = fmt::format("files may have {} only (ulimit -f)",
                          to_string(Bytes(static_cast<std::int64_t>(largest_file.rlim_cur))));
    close(file);
    return nullptr;
  }
  if (ftruncate(file, size) != 0) {
    why_not = reason("ftruncate of a memory file");
    close(file);
    return nullptr;
  }
  std::byte* begin = map_file(file, size, PROT_READ | PROT_WRITE);
  if (begin == nullptr) {
    why_not = reason("mmap of a memory file");
    close(file);
    return nullptr;
  }
  return std::shared_ptr<SharedArena>(new SharedArena(file, begin, Bytes(size), Bytes(front_size)));
#else
  static_cast<void>(front);
  why_not = "this system has no memory files";
  return nullptr;
#endif
}

SharedArena::SharedArena(int file, std::byte* begin, Bytes size, Bytes front)
    : file_(file), begin_(begin), size_(size), front_(front) {
  holes_[front.value] = size.value - front.value;
}

SharedArena::~SharedArena() {
  munmap(begin_, static_cast<std::size_t>(size_.value));
  close(file_);
}

// First fit: what is asked for again and again is kept by the device's cache, so this sees little.
std::byte* SharedArena::allocate(Bytes bytes) {
  const std::int64_t unit = alignment_of(bytes.value);
  const std::int64_t wanted = rounded(std::max<std::int64_t>(bytes.value, 1), alignment);
  const std::lock_guard lock(mutex_);
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    const auto [first, length] = *hole;
    const std::int64_t begin = rounded(first, unit);
    if (begin + wanted > first + length) {
      continue;
    }
    holes_.erase(hole);
    if (begin > first) {
      holes_[first] = begin - first;
    }
    if (begin + wanted < first + length) {
      holes_[begin + wanted] = first + length - begin - wanted;
    }
    return begin_ + begin;
  }
  return nullptr;
}

void SharedArena::release(std::byte* address, Bytes bytes) {
  std::int64_t first = address - begin_;
  std::int64_t length = rounded(std::max<std::int64_t>(bytes.value, 1), alignment);
#ifdef __linux__
  if (bytes.value >= paged_from) {
    // Whole pages of it only: the last one may hold the beginning of the next block.
    const std::int64_t pages = (first + length) / 4096 * 4096 - first;
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first, pages);
  }
#endif
  const std::lock_guard lock(mutex_);
  const auto next = holes_.lower_bound(first);
  if (next != holes_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == first) {
      first = before->first;
      length += before->second;
      holes_.erase(before);
    }
  }
  if (next != holes_.end() && first + length == next->first) {
    length += next->second;
    holes_.erase(next);
  }
  holes_[first] = length;
}

// --- Another rank's ------------------------------------------------------------------------------

std::unique_ptr<MappedArena> MappedArena::open(std::int64_t process, int file, Bytes size,
                                               std::string& why_not) {
  const std::string path = fmt::format("/proc/{}/fd/{}", process, file);
  const int opened = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (opened < 0) {
    why_not = reason(fmt::format("opening {}", path).c_str());
    return nullptr;
  }
  std::byte* begin = map_file(opened, size.value, PROT_READ);
  if (begin == nullptr) {
    why_not = reason(fmt::format("mmap of {}", path).c_str());
  }
  close(opened);
  return begin == nullptr ? nullptr : std::unique_ptr<MappedArena>(new MappedArena(begin, size));
}

MappedArena::~MappedArena() {
  munmap(begin_, static_cast<std::size_t>(size_.value));
}

std::unique_ptr<MemorySource> make_arena_memory(std::shared_ptr<SharedArena> arena) {
  return std::make_unique<ArenaMemory>(std::move(arena));
}

}  // namespace ringworld
