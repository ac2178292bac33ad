package bourse_test

import (
	"strings"
	"testing"
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
		if err := normalized(`"dns":` + text); (err == nil) != ok {
			t.Errorf("%s: %v, want ok %t", text, err, ok)
		}
	}
}
