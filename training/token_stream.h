// Files and directories as one endless-looking row of tokens, in host memory, read-only.
//
// A file whose name ends in .bin holds tokens in the format of llm.c: a header of 256 int32 (magic
// 20240520, version 1, number of tokens, zeros), then the tokens as uint16, little-endian. Every
// other file, text or not, is bytes, and every byte is a token of the vocabulary 0 to 255. A
// directory is read recursively: its files sorted by path, hidden files and directories left out,
// nothing put between them. Byte files and token files cannot be mixed in one stream.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "training/file_view.h"

namespace ringworld {

class TokenStream {
 public:
  // The paths in the order given. Throws DataError that names the path for what is missing,
  // unreadable, empty, or not what its extension promises.
  static std::shared_ptr<const TokenStream> open(const std::vector<std::string>& paths);
  // `tokens` random tokens below min(vocabulary, 65536), a function of the seed; for checks that
  // need no real text.
  static std::shared_ptr<const TokenStream> synthetic(std::int64_t vocabulary, std::int64_t tokens,
                                                      std::uint64_t seed);

  std::int64_t tokens() const { return tokens_; }
  // What it was made of, for messages: "README.md", "docs (12 files)".
  const std::string& description() const { return description_; }
  // out = tokens [first, first + out.size()), which must lie within the stream.
  void read(std::int64_t first, std::span<std::int32_t> out) const;
  // Throws DataError, naming file, token and vocabulary, when a token is not below `vocabulary`.
  // Looks at every token unless the format itself rules that out (bytes, vocabulary of 256 or
  // more).
  void check_vocabulary(std::int64_t vocabulary) const;

 private:
  enum class Format : std::uint8_t { bytes, tokens };
  struct Piece {
    std::string path;
    std::shared_ptr<const std::byte> memory;  // the first token
    std::int64_t first;                       // its index in the stream
    std::int64_t count;
  };

  TokenStream() = default;
  void append(const std::string& path);
  template <typename T>
  void read_as(std::int64_t first, std::span<std::int32_t> out) const;

  Format format_ = Format::bytes;  // of all pieces
  std::vector<Piece> pieces_;      // none empty
  std::int64_t tokens_ = 0;
  std::string first_path_;
  std::string description_;
};

}  // namespace ringworld
