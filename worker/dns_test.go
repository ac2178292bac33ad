package worker

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

func TestDNSOfAConfig(t *testing.T) {
	for text, ok := range map[string]bool{
		`{}`:                                                           true,
		`{"skip_registration":true}`:                                   true,
		`{"nameservers":["1.1.1.1","fdaa::3"]}`:                        true,
		`{"nameservers":["dns.example.com"]}`:                          false,
		`{"nameservers":["1.1.1.1\nsearch x"]}`:                        false,
		`{"nameservers":["1","2","3","4"]}`:                            false,
		`{"searches":["a.internal","b."]}`:                             true,
		`{"searches":["a\noptions rotate"]}`:                           false,
		`{"searches":["` + strings.Repeat("a.", 200) + `"]}`:           false,
		`{"options":[{"name":"ndots","value":"5"},{"name":"rotate"}]}`: true,
		`{"options":[{"name":"a b"}]}`:                                 false,
		`{"hostname":"web-1","hostname_fqdn":"web-1.example.com"}`:     true,
		`{"hostname":"-"}`:                                             false,
		`{"hostname":"` + strings.Repeat("a", 65) + `"}`:               false,
		`{"hostname_fqdn":"a b"}`:                                      false,
		`[]`:                                                           false,
		`{"nameservers":"1.1.1.1"}`:                                    false,
	} {
		if _, err := parseDNS(&bourse.Config{Kept: bourse.Kept{DNS: []byte(text)}}); (err == nil) != ok {
			t.Errorf("%s: %v, want ok %t", text, err, ok)
		}
	}
}

// Whatever a client sends, nothing of it becomes more than one line or word of
// a machine's files.
func FuzzDNS(f *testing.F) {
	for _, s := range []string{`{}`, `{"nameservers":["9.9.9.9"],"searches":["a"],"options":[{"name":"ndots","value":"1"}],"hostname":"h","hostname_fqdn":"h.x"}`, `{"searches":["\n"]}`, `{"options":[{"name":"a\tb"}]}`, `0`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			return
		}
		m := &bourse.Machine{ID: "00000a00000000", PrivateIP: netip.MustParseAddr("fdaa::2"), Config: bourse.Config{Kept: bourse.Kept{DNS: text}}}
		n, err := namesOf(m, &driver.Network{Hosts: []string{"::1 self"}})
		if err != nil {
			return
		}
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
