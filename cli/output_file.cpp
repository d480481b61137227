#include "cli/output_file.h"

#include <filesystem>
#include <iostream>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/error.h"

namespace ringworld {
namespace {

[[noreturn]] void refuse(std::string_view option, const std::string& path) {
  throw DataError(
      fmt::format("{}: cannot write '{}'; check the path and free space", option, path));
}

bool is_there(const std::string& path) {
  std::error_code unknown;
  return std::filesystem::exists(std::filesystem::symlink_status(path, unknown));
}

// A file that is open for writing; nothing in it has changed.
class Output {
 public:
  explicit Output(const std::string& path)
      : file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)) {
    if (file_ >= 0 && ::fstat(file_, &before_) != 0) {
      ::close(file_);
      file_ = -1;
    }
  }
  ~Output() {
    if (file_ >= 0) {
      ::close(file_);
    }
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  bool open() const { return file_ >= 0; }
  // Replaces what is in it. A file gets the room first, so that a full disk shows while what was
  // there is still whole.
  bool write(std::string_view text) const {
    const bool is_file = S_ISREG(before_.st_mode);
    const auto size = static_cast<off_t>(text.size());
    if (is_file && size > before_.st_size && ::posix_fallocate(file_, 0, size) != 0) {
      static_cast<void>(!::ftruncate(file_, before_.st_size));
      return false;
    }
    while (!text.empty()) {
      const ssize_t written = ::write(file_, text.data(), text.size());
      if (written < 0) {
        return false;
      }
      text.remove_prefix(static_cast<std::size_t>(written));
    }
    return !is_file || ::ftruncate(file_, size) == 0;
  }

 private:
  int file_;
  struct stat before_ {};
};

}  // namespace

void check_writable(std::string_view option, const std::string& path) {
  if (path.empty() || path == "-") {
    return;
  }
  std::error_code unknown;
  const std::filesystem::file_status status = std::filesystem::status(path, unknown);
  if (exists(status) && !is_regular_file(status)) {  // to open it may say something to others
    if (is_directory(status) || ::access(path.c_str(), W_OK) != 0) {
      refuse(option, path);
    }
    return;
  }
  const bool is_new = !is_there(path);
  if (!Output(path).open()) {
    refuse(option, path);
  }
  if (is_new) {
    std::filesystem::remove(path, unknown);
  }
}

void write_file(std::string_view option, const std::string& path, const std::string& text) {
  if (path.empty()) {
    return;
  }
  if (path == "-") {
    std::cout << text << std::flush;
    return;
  }
  const bool is_new = !is_there(path);
  const Output output(path);
  if (!output.open() || !output.write(text)) {
    std::error_code unknown;
    if (is_new && output.open()) {
      std::filesystem::remove(path, unknown);
    }
    refuse(option, path);
  }
}

}  // namespace ringworld
