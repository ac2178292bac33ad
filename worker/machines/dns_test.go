package machines

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// Whatever a client sends, each value takes at most one line or one word in a machine's files.
func FuzzDNS(f *testing.F) {
	for _, s := range []string{`{}`, `{"nameservers":["9.9.9.9"],"searches":["a"],"options":[{"name":"ndots","value":"1"}],"hostname":"h","hostname_fqdn":"h.x"}`, `{"searches":["\n"]}`, `{"options":[{"name":"a\tb"}]}`, `0`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var d bourse.DNS
		if json.Unmarshal(text, &d) != nil || d.Validate() != nil {
			return
		}
		m := &bourse.Machine{ID: "00000a00000000", PrivateIP: netip.MustParseAddr("fdaa::2"), Config: bourse.Config{DNS: &d}}
		n := namesOf(m, &driver.Network{Hosts: []string{"::1 self"}})
		words := append(append([]string{n.Hostname}, n.Resolver...), append(n.Search, n.Options...)...)
		for _, w := range words {
			if w == "" || strings.ContainsAny(w, " \t\r\n\x00#;") {
				t.Errorf("%q gives the word %q", text, w)
			}
		}
		for _, line := range n.Hosts {
			if strings.ContainsAny(line, "\r\n\x00#") {
				t.Errorf("%q gives the line %q", text, line)
			}
		}
	})
}
