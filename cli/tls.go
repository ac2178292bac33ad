package cli

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"

	"github.com/bourse-dev/bourse"
)

// transport returns what API requests go through, nil for the usual one: with
// --ca, one that trusts the CA of that file and no other. A file that cannot be used fails the requests,
// as CodeInvalid, not the commands that make none.
func (s *Shell) transport() http.RoundTripper {
	if s.Transport == nil && s.ca != "" {
		s.Transport = trustOnly(s.ca)
	}
	return s.Transport
}

func trustOnly(file string) http.RoundTripper {
	text, err := os.ReadFile(file)
	if err != nil {
		return noTransport{bourse.Errorf(bourse.CodeInvalid, "--ca: %w", err)}
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return noTransport{bourse.Errorf(bourse.CodeInvalid, "--ca: %s has no certificate in PEM", file)}
	}
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		t = &http.Transport{Proxy: http.ProxyFromEnvironment}
	}
	t = t.Clone()
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return t
}

// noTransport fails every request.
type noTransport struct{ err error }

func (n noTransport) RoundTrip(*http.Request) (*http.Response, error) { return nil, n.err }
