// What the listener hands to the dashboard's handlers and gets from them. Free of any HTTP library.
// Thread rule: plain data; a stream is used by the thread that serves its connection.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ablate {

struct HttpRequest {
  std::string method;  // "GET" for HEAD, too: the listener leaves the body out
  std::string target;  // as it was sent: "/path?query"
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case, in any order
  std::string body;

  // The value of the one header of this name (lower case); "" without it, and where there are several: of two, nobody
  // can tell which one somebody before us has looked at.
  std::string_view Header(std::string_view name) const {
    std::string_view found;
    int count = 0;
    for (const auto& [key, value] : headers) {
      if (key == name && ++count == 1) found = value;
    }
    return count == 1 ? found : std::string_view();
  }
  bool HasHeader(std::string_view name) const {
    for (const auto& header : headers) {
      if (header.first == name) return true;
    }
    return false;
  }
};

// A body that is sent in pieces while its handler runs.
class HttpStream {
 public:
  virtual ~HttpStream() = default;
  // False: the client is gone, or takes nothing any more.
  virtual bool Write(std::string_view bytes) = 0;
  // The client is gone, or the server stops. Quick.
  virtual bool Ended() = 0;
};

struct HttpResponse {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string media_type;
  std::string body;
  std::string_view constant_body;             // instead of `body`: bytes that outlive the server
  std::function<void(HttpStream*)> stream;    // instead of both
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Once the head of a request is there: an answer refuses it, and its body is not read.
  virtual std::optional<HttpResponse> Refuse(const HttpRequest& request) = 0;
  // Of a request that was not refused, with its body.
  virtual HttpResponse Answer(const HttpRequest& request) = 0;
  // For what the listener itself refuses.
  virtual std::string ErrorBody(int status, std::string_view message) = 0;
};

}  // namespace ablate
