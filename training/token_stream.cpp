#include "training/token_stream.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include <fmt/format.h>

#include "runtime/error.h"
#include "runtime/random.h"

namespace ringworld {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t token_file_magic = 20240520;
constexpr std::int32_t token_file_version = 1;
constexpr std::size_t token_file_header = 256 * sizeof(std::int32_t);  // bytes

bool is_hidden(const fs::path& path) {
  return path.filename().native().starts_with('.');
}

// The files below a directory, sorted by path, so that every machine sees the same order.
std::vector<std::string> files_below(const std::string& directory) {
  std::vector<std::string> files;
  try {
    for (fs::recursive_directory_iterator it(directory), end; it != end; ++it) {
      if (is_hidden(it->path())) {
        if (it->is_directory()) {
          it.disable_recursion_pending();
        }
      } else if (it->is_regular_file()) {
        files.push_back(it->path().string());
      }
    }
  } catch (const fs::filesystem_error& error) {
    throw DataError(
        fmt::format("{}: cannot be listed: {}", error.path1().string(), error.code().message()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Checks the header of a token file and returns how many tokens it holds.
std::int64_t tokens_in(std::span<const std::byte> file, const std::string& path) {
  if (file.size() < token_file_header) {
    throw DataError(fmt::format(
        "{}: a token file (.bin) begins with a header of {} bytes, but the file has only {}", path,
        token_file_header, file.size()));
  }
  std::int32_t header[3];  // magic, version, tokens
  std::memcpy(header, file.data(), sizeof header);
  const auto expect = [&path](const char* what, std::int64_t expected, std::int64_t found) {
    if (expected == found) {
      return;
    }
    throw DataError(fmt::format(
        "{}: {} is {}, expected {} as in llm.c's token files (a file that is to be read as bytes "
        "must not be named .bin)",
        path, what, found, expected));
  };
  expect("the magic number", token_file_magic, header[0]);
  expect("the version", token_file_version, header[1]);
  expect(fmt::format("the size in bytes for the {} tokens in its header", header[2]).c_str(),
         static_cast<std::int64_t>(token_file_header) + 2 * std::int64_t{header[2]},
         static_cast<std::int64_t>(file.size()));
  return header[2];
}

}  // namespace

void TokenStream::append(const std::string& path) {
  const Format format = path.ends_with(".bin") ? Format::tokens : Format::bytes;
  if (first_path_.empty()) {
    first_path_ = path;
    format_ = format;
  } else if (format != format_) {
    throw DataError(fmt::format("token files (.bin) and files of bytes cannot be mixed: {} and {}",
                                first_path_, path));
  }
  const FileView file(path);
  const bool bytes = format == Format::bytes;
  const std::int64_t count =
      bytes ? static_cast<std::int64_t>(file.bytes().size()) : tokens_in(file.bytes(), path);
  if (count == 0) {
    return;
  }
  const std::byte* first = file.bytes().data() + (bytes ? 0 : token_file_header);
  pieces_.push_back({path, {file.owner(), first}, tokens_, count});
  tokens_ += count;
}

std::shared_ptr<const TokenStream> TokenStream::open(const std::vector<std::string>& paths) {
  std::shared_ptr<TokenStream> stream(new TokenStream);
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) {
      throw DataError(fmt::format("{}: {}", path, error ? error.message() : "no such file"));
    }
    std::string name = path;
    const std::int64_t before = stream->tokens_;
    if (fs::is_directory(status)) {
      const std::vector<std::string> files = files_below(path);
      for (const std::string& file : files) {
        stream->append(file);
      }
      name += fmt::format(" ({} files)", files.size());
    } else {
      stream->append(path);
    }
    if (stream->tokens_ == before) {
      throw DataError(fmt::format("{}: holds no data; give a file or directory with text", name));
    }
    stream->description_ += (stream->description_.empty() ? "" : ", ") + name;
  }
  return stream;
}

std::shared_ptr<const TokenStream> TokenStream::synthetic(std::int64_t vocabulary,
                                                          std::int64_t tokens, std::uint64_t seed) {
  const auto limit = static_cast<std::uint64_t>(std::clamp<std::int64_t>(vocabulary, 1, 65536));
  const RandomKey key{seed, Purpose::synthetic_data, 0};
  auto values = std::make_shared<std::vector<std::uint16_t>>(static_cast<std::size_t>(tokens));
  for (std::size_t i = 0; i < values->size(); ++i) {
    (*values)[i] = static_cast<std::uint16_t>(random_bits(key, i) % limit);
  }
  std::shared_ptr<TokenStream> stream(new TokenStream);
  stream->format_ = Format::tokens;
  stream->description_ = "synthetic tokens";
  stream->tokens_ = tokens;
  if (tokens > 0) {
    const auto* first = reinterpret_cast<const std::byte*>(values->data());
    stream->pieces_.push_back({stream->description_, {values, first}, 0, tokens});
  }
  return stream;
}

void TokenStream::read(std::int64_t first, std::span<std::int32_t> out) const {
  if (first < 0 || first + static_cast<std::int64_t>(out.size()) > tokens_) {
    throw std::out_of_range(fmt::format("tokens [{}, {}) of a stream of {}", first,
                                        first + static_cast<std::int64_t>(out.size()), tokens_));
  }
  format_ == Format::bytes ? read_as<std::uint8_t>(first, out) : read_as<std::uint16_t>(first, out);
}

template <typename T>
void TokenStream::read_as(std::int64_t first, std::span<std::int32_t> out) const {
  if (out.empty()) {
    return;
  }
  // The last piece that begins at or before `first`, then on from piece to piece.
  auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), first,
                                [](std::int64_t index, const Piece& p) { return index < p.first; });
  --piece;
  for (std::size_t done = 0; done < out.size(); ++piece) {
    const std::int64_t skip = first + static_cast<std::int64_t>(done) - piece->first;
    const std::size_t count =
        std::min(out.size() - done, static_cast<std::size_t>(piece->count - skip));
    const T* tokens = reinterpret_cast<const T*>(piece->memory.get()) + skip;
    std::copy(tokens, tokens + count, out.begin() + static_cast<std::ptrdiff_t>(done));
    done += count;
  }
}

void TokenStream::check_vocabulary(std::int64_t vocabulary) const {
  if (vocabulary >= (format_ == Format::bytes ? 256 : 65536)) {
    return;
  }
  std::vector<std::int32_t> tokens;
  for (const Piece& piece : pieces_) {
    constexpr std::int64_t block = 1 << 16;
    for (std::int64_t at = 0; at < piece.count; at += block) {
      tokens.resize(static_cast<std::size_t>(std::min(block, piece.count - at)));
      read(piece.first + at, tokens);
      const auto bad = std::max_element(tokens.begin(), tokens.end());
      if (*bad < vocabulary) {
        continue;
      }
      throw DataError(
          fmt::format("{}: token {} at position {} is not below the model's vocabulary of {}; use "
                      "--vocabulary {} or more, or data made for this vocabulary",
                      piece.path, *bad, at + (bad - tokens.begin()), vocabulary,
                      format_ == Format::bytes ? 256 : *bad + 1));
    }
  }
}

}  // namespace ringworld
