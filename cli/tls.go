package cli

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"

	"github.com/bourse-dev/bourse"
)

// transport returns the transport of API requests, nil for the usual one. With a CA
// of its own the API is trusted by that CA alone. A context or CA that cannot be used
// fails the requests, but not the commands that make none.
func (s *Shell) transport() http.RoundTripper {
	if s.Transport != nil {
		return s.Transport
	}
	if err := s.target().err; err != nil {
		return noTransport{err}
	}
	ca, err := s.trusted()
	switch {
	case err != nil:
		return noTransport{err}
	case ca == "":
		return nil
	}
	s.Transport = trustOnly(ca)
	return s.Transport
}

// trusted returns the certificates of the CA to trust for the API, "" for those of
// the host: of --ca, of the context, or of the environment.
func (s *Shell) trusted() (string, error) {
	if ca := s.target().CA; s.ca == "" && ca != "" {
		return ca, nil
	}
	return s.GivenCA()
}

func trustOnly(ca string) http.RoundTripper {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(ca)) {
		return noTransport{bourse.Errorf(bourse.CodeInvalid, "the CA of the context has no certificate in PEM")}
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
