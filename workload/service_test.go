package workload

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
)

// TestOptionsOfPorts checks that port options that a proxy could not serve are refused with an error that contains the
// option's path.
func TestOptionsOfPorts(t *testing.T) {
	for port, want := range map[string]string{
		`"handlers":["tls"],"tls_options":{"versions":["TLSv1.2","TLSv1.3"]}`:            "",
		`"handlers":["tls"],"tls_options":{"versions":["SSLv3"]}`:                        `.tls_options.versions: "SSLv3"`,
		`"handlers":["tls"],"tls_options":{"versions":["TLSv1.2","TLSv1.1"]}`:            `.tls_options.versions: "TLSv1.1"`,
		`"handlers":["tls","http"],"tls_options":{"alpn":["h2","http/1.1"]}`:             "",
		`"handlers":["tls","http"],"tls_options":{"alpn":["h2","spdy/3"]}`:               `.tls_options.alpn: "spdy/3"`,
		`"handlers":["tls"],"tls_options":{"alpn":["mqtt"]}`:                             "",
		`"handlers":["tls"],"tls_options":{"alpn":[""]}`:                                 `.tls_options.alpn: ""`,
		`"handlers":["tls"],"tls_options":{"alpn":["` + strings.Repeat("x", 256) + `"]}`: ".tls_options.alpn: ",
		`"handlers":["proxy_proto"],"proxy_proto_options":{"version":"v2"}`:              "",
		`"handlers":["proxy_proto"],"proxy_proto_options":{"version":"v3"}`:              `.proxy_proto_options.version "v3"`,
	} {
		c := bourse.Config{StoredConfig: bourse.StoredConfig{Services: json.RawMessage(`[{"internal_port":80,"ports":[{"port":443,` + port + `}]}]`)}}
		_, err := Review(&c)
		if want == "" && err == nil {
			continue
		}
		if bourse.CodeOf(err) != bourse.CodeInvalid || !strings.HasPrefix(bourse.MessageOf(err), "invalid config.services[0].ports[0]"+want) {
			t.Errorf("%s: %v, want %q", port, err, want)
		}
	}
}
