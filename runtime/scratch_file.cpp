#include "runtime/scratch_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "runtime/error.h"

namespace ringworld {
namespace {

// Returns -1 and leaves the error in errno.
int open_without_name(const std::string& directory) {
#ifdef O_TMPFILE
  const int file = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0) {
    return file;
  }
#endif
  // Not every file system has files that never had a name.
  std::string path = directory + "/ringworld-XXXXXX";
  const int named = ::mkstemp(path.data());
  if (named >= 0) {
    ::unlink(path.c_str());
    ::fcntl(named, F_SETFD, FD_CLOEXEC);
  }
  return named;
}

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<std::byte, Free>;

AlignedMemory aligned_zeros(std::int64_t bytes) {
  auto* const memory =
      static_cast<std::byte*>(std::aligned_alloc(file_alignment, static_cast<std::size_t>(bytes)));
  if (memory == nullptr) {
    throw OutOfDeviceMemory(
        fmt::format("this machine has no {} left to write a file from", to_string(Bytes(bytes))));
  }
  std::memset(memory, 0, static_cast<std::size_t>(bytes));
  return AlignedMemory(memory);
}

// Blocks for [from, to), where the file system cannot reserve them. Returns an errno, 0 when done.
int write_zeros(int file, std::int64_t from, std::int64_t to) {
  constexpr std::int64_t chunk = 1 << 20;
  const AlignedMemory zeros = aligned_zeros(chunk);
  while (from < to) {
    const ssize_t written =
        ::pwrite(file, zeros.get(), static_cast<std::size_t>(std::min(chunk, to - from)), from);
    if (written < 0 && errno != EINTR) {
      return errno;
    }
    from += std::max<ssize_t>(written, 0);
  }
  return 0;
}

// As write_zeros.
int reserve_blocks(int file, std::int64_t from, std::int64_t to) {
#ifdef __linux__
  for (;;) {
    if (::fallocate(file, 0, from, to - from) == 0) {
      return 0;
    }
    if (errno == EOPNOTSUPP || errno == ENOSYS) {
      break;
    }
    if (errno != EINTR) {
      return errno;
    }
  }
#endif
  return write_zeros(file, from, to);
}

}  // namespace

ScratchFile::ScratchFile(std::string directory, std::string option, bool allow_direct)
    : directory_(std::move(directory)), option_(std::move(option)) {
  file_ = open_without_name(directory_);
  if (file_ < 0) {
    throw DataError(fmt::format(
        "{} {}: no file can be made there: {}; name a directory that exists and can be written to",
        option_, directory_, std::strerror(errno)));
  }
  if (allow_direct) {
    try_direct();
  }
}

ScratchFile::~ScratchFile() {
  ::close(file_);
}

// Some file systems accept the flag and refuse the writes, so a page goes there and back.
void ScratchFile::try_direct() {
#ifdef O_DIRECT
  const int flags = ::fcntl(file_, F_GETFL);
  if (::fcntl(file_, F_SETFL, flags | O_DIRECT) != 0) {
    return;
  }
  const AlignedMemory page = aligned_zeros(file_alignment);
  direct_ = ::pwrite(file_, page.get(), file_alignment, 0) == file_alignment &&
            ::pread(file_, page.get(), file_alignment, 0) == file_alignment;
  if (!direct_) {
    ::fcntl(file_, F_SETFL, flags);
  }
  (void)!::ftruncate(file_, 0);
#endif
}

void ScratchFile::fail(int error) const {
  throw DataError(fmt::format("{} {}: {}", option_, directory_, std::strerror(error)));
}

void ScratchFile::grow(Bytes size) {
  const Bytes more = size - size_;
  if (more.value <= 0) {
    return;
  }
  // Asked for before it is taken: the system answers a file above the limit with a signal, and some
  // fill the disk before they find it too small.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      static_cast<std::uint64_t>(size.value) > limit.rlim_cur) {
    throw DataError(fmt::format(
        "{} {}: a file of {} is needed, files of this process may have {}; raise it with ulimit -f",
        option_, directory_, to_string(size),
        to_string(Bytes(static_cast<std::int64_t>(limit.rlim_cur)))));
  }
  const auto no_room = [&](const std::string& found) {
    return DataError(fmt::format(
        "{} {}: {} more are needed there, {}; make room, name a directory on a larger disk, or "
        "offload less",
        option_, directory_, to_string(more), found));
  };
  struct statvfs disk {};
  if (::fstatvfs(file_, &disk) == 0 && disk.f_blocks > 0) {
    const double free = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
    if (static_cast<double>(more.value) > free) {
      throw no_room(fmt::format("{} are free", to_string(Bytes(static_cast<std::int64_t>(free)))));
    }
  }
  if (const int error = reserve_blocks(file_, size_.value, size.value); error != 0) {
    (void)!::ftruncate(file_, size_.value);
    if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
      throw no_room(std::strerror(error));
    }
    fail(error);
  }
  size_ = size;
}

}  // namespace ringworld
