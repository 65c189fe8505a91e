#include "base/host_port.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

TEST(HostPorts, AreTakenApartAndPutTogetherAgain) {
  struct Case {
    std::string text, host;
    int port;
  };
  for (const Case& one : std::vector<Case>{{"127.0.0.1:7433", "127.0.0.1", 7433},
                                           {"localhost:0", "localhost", 0},
                                           {"0.0.0.0:65535", "0.0.0.0", 65535},
                                           {"node-1.example_org:1", "node-1.example_org", 1},
                                           {"[::1]:7", "::1", 7},
                                           {"[::]:80", "::", 80},
                                           {"[fe80::1%eth0]:80", "fe80::1%eth0", 80},
                                           {"[::ffff:10.0.0.1]:80", "::ffff:10.0.0.1", 80}}) {
    const absl::StatusOr<HostPort> parsed = ParseHostPort(one.text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->host, one.host);
    EXPECT_EQ(parsed->port, one.port);
    EXPECT_EQ(ToText(*parsed), one.text);
  }
  EXPECT_EQ(ParseHostPort("h:0080")->port, 80);
}

TEST(HostPorts, NothingElseIsOne) {
  for (const std::string text :
       {"", ":", "nonsense", ":1", "host:", "host:x", "host:70000", "host:65536", "host:-1", "host:+1", "host: 1", "host:1 ",
        "host:4294967297", "a b:1", " :1", "a\n:1", "::1:7", "[::1]", "[::1:7", "::1]:7", "[]:7", "[localhost]:7", "[:]x:7",
        "[::1\n]:7", "[::1%a]b]:7", "http://host:1", "host/x:1", "user@host:1", "unix:/x", "unix:x:1"}) {
    const absl::StatusOr<HostPort> parsed = ParseHostPort(text);
    EXPECT_TRUE(absl::IsInvalidArgument(parsed.status())) << text;
    EXPECT_THAT(std::string(parsed.status().message()), testing::HasSubstr("\"" + text + "\" is not HOST:PORT")) << text;
  }
}

}  // namespace
}  // namespace ablate
