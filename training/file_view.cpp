#include "training/file_view.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/error.h"

namespace ringworld {
namespace {

constexpr std::size_t map_from = 1 << 20;  // bytes; below, reading costs less than a mapping

// A file descriptor that is closed when it goes.
class Descriptor {
 public:
  explicit Descriptor(const std::string& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~Descriptor() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail(const std::string& path, int error) {
  throw DataError(fmt::format("{}: cannot be read: {}", path, std::strerror(error)));
}

std::shared_ptr<const std::byte> map(const Descriptor& file, std::size_t size,
                                     const std::string& path) {
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) {
    fail(path, errno);
  }
  return {static_cast<const std::byte*>(address),
          [size](const std::byte* p) { ::munmap(const_cast<std::byte*>(p), size); }};
}

std::shared_ptr<const std::byte> read(const Descriptor& file, std::size_t size,
                                      const std::string& path) {
  std::shared_ptr<std::byte[]> memory(new std::byte[size]);
  for (std::size_t done = 0; done < size;) {
    const ssize_t got = ::read(file.get(), memory.get() + done, size - done);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      fail(path, errno);
    }
    if (got == 0) {
      throw DataError(fmt::format("{}: became shorter while it was read", path));
    }
    done += static_cast<std::size_t>(got);
  }
  return {memory, memory.get()};
}

}  // namespace

FileView::FileView(const std::string& path) {
  const Descriptor file(path);
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) {
    fail(path, errno);
  }
  if (!S_ISREG(status.st_mode)) {
    throw DataError(fmt::format("{}: is not a regular file", path));
  }
  size_ = static_cast<std::size_t>(status.st_size);
  memory_ = size_ >= map_from ? map(file, size_, path) : read(file, size_, path);
}

}  // namespace ringworld
