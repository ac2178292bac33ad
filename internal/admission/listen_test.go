package admission_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

func TestCheckListen(t *testing.T) {
	needs := []admission.Safeguard{admission.TLS, admission.Tokens}
	tests := []struct {
		name     string
		addr     string
		has      []admission.Safeguard
		insecure bool
		missing  string // the safeguard that the error must name; "" if listening is allowed
	}{
		{"loopback", "127.0.0.1:4280", nil, false, ""},
		{"another loopback", "127.8.9.1:0", nil, false, ""},
		{"loopback of IPv6", "[::1]:4280", nil, false, ""},
		{"loopback written as IPv6", "[::ffff:127.0.0.1]:4280", nil, false, ""},
		{"a private address", "10.0.0.1:4280", nil, false, "TLS (CA, certificate and key) and client tokens"},
		{"a private address written as IPv6", "[::ffff:10.0.0.1]:4280", nil, false, "TLS (CA, certificate and key) and client tokens"},
		{"every address", "0.0.0.0:4280", nil, false, "TLS (CA, certificate and key) and client tokens"},
		{"every address of IPv6", "[::]:4280", nil, false, "TLS (CA, certificate and key) and client tokens"},
		{"link local", "[fe80::1%eth0]:4280", nil, false, "TLS (CA, certificate and key) and client tokens"},
		{"without tokens", "10.0.0.1:4280", []admission.Safeguard{admission.TLS}, false, "client tokens"},
		{"without TLS", "10.0.0.1:4280", []admission.Safeguard{admission.Tokens}, false, "TLS (CA, certificate and key)"},
		{"with both", "10.0.0.1:4280", needs, false, ""},
		{"insecure", "0.0.0.0:4280", nil, true, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := admission.Listen{What: "the API", Addr: netip.MustParseAddrPort(tt.addr), Needs: needs, Has: tt.has}
			err := admission.CheckListen(l, tt.insecure)
			switch {
			case tt.missing == "" && err != nil:
				t.Errorf("got error %v, want none", err)
			case tt.missing != "" && (bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(err.Error(), "without "+tt.missing+":")):
				t.Errorf("got %v, want an error that names the missing safeguard %s", err, tt.missing)
			}
		})
	}
	if err := admission.CheckListen(admission.Listen{What: "the API"}, true); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("no address: got %v", err)
	}
}
