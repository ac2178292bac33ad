package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/loopback"
	"github.com/bourse-dev/bourse/machinesapi"
)

// DefaultAPI is the address where a broker listens by default. Commands use it if no
// other API is chosen.
const DefaultAPI = "127.0.0.1:4280"

// baseURL returns the API's URL, including its scheme.
func (s *Shell) baseURL() string {
	base := s.target().API
	if !strings.Contains(base, "://") {
		scheme := "http://"
		if s.target().CA != "" {
			scheme = "https://"
		}
		base = scheme + base
	}
	return base
}

// Client returns a client for the API.
func (s *Shell) Client() *machinesapi.Client {
	token, base := s.credential()
	return &machinesapi.Client{BaseURL: base, Token: token, HTTP: &http.Client{Transport: s.target().transport}}
}

// credential returns the token to send to the API, and the API's URL. It looks for the token in the
// following places, in this order: --token, the context, the environment (unless the API was chosen
// through a context), and the file that a broker on loopback wrote. The token is "" if it finds
// none.
func (s *Shell) credential() (token, base string) {
	t := s.target()
	token, base = cmp.Or(s.token, t.Token), s.baseURL()
	if token == "" && !t.fromContext {
		token = s.Getenv("BOURSE_API_TOKEN")
	}
	if token != "" {
		return token, base
	}
	if token, at := loopback.Find(s.Getenv, base); token != "" {
		return token, at
	}
	return "", base
}

// WarnMissing warns that a list is incomplete because the workers in silent did not answer. The
// parameter what names the listed objects, in the plural.
func (s *Shell) WarnMissing(silent []bourse.WorkerID, what string) {
	if len(silent) > 0 {
		names := make([]string, len(silent))
		for i, w := range silent {
			names[i] = Clean(string(w))
		}
		s.Note("warning: no answer from " + strings.Join(names, ", ") + "; their " + what + " are missing from this list")
	}
}

func trustOnly(ca string) http.RoundTripper {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(ca)) {
		return failingTransport{bourse.Errorf(bourse.CodeInvalid, "the context's CA contains no PEM certificate")}
	}
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		t = &http.Transport{Proxy: http.ProxyFromEnvironment}
	}
	t = t.Clone()
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return t
}

// failingTransport fails every request.
type failingTransport struct{ err error }

func (n failingTransport) RoundTrip(*http.Request) (*http.Response, error) { return nil, n.err }

// Temporary reports whether err is a temporary failure of the connection or the server, in which
// case a retry may succeed.
func Temporary(err error) bool {
	switch bourse.CodeOf(err) {
	case bourse.CodeUnavailable, bourse.CodeRateLimited:
		return true
	case bourse.CodeTimeout: // temporary if a proxy reported it, but not if the request itself timed out
		reply, ok := errors.AsType[*machinesapi.ReplyError](err)
		return ok && reply.Status >= http.StatusInternalServerError
	default:
		return false
	}
}

// Backoff computes increasing delays between retries. The zero value is ready to use.
type Backoff struct{ next time.Duration }

// The minimum and maximum delay of a Backoff.
const (
	minBackoff = 250 * time.Millisecond
	MaxBackoff = 10 * time.Second
)

// Wait blocks until it is time for the next attempt. It returns ctx's cause if ctx is done first.
// Half of the delay is random, so that the clients of a restarted server do not all reconnect at
// once.
func (b *Backoff) Wait(ctx context.Context) error {
	wait := max(b.next, minBackoff)
	b.next = min(2*wait, MaxBackoff)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(wait/2 + rand.N(wait/2+1)):
		return nil
	}
}

// Reset sets the delay back to its minimum if the last connection lasted longer than [MaxBackoff].
func (b *Backoff) Reset(lasted time.Duration) {
	if lasted > MaxBackoff {
		b.next = 0
	}
}

// URLs returns the URLs where proxies serve their routes, without duplicates: first every route's
// preferred URL, then every route's second URL, and so on.
func URLs(list []machinesapi.Proxy) (out []string) {
	most := 0
	for i := range list {
		for j := range list[i].Routes {
			most = max(most, len(list[i].Routes[j].URLs))
		}
	}
	for rank := range most {
		for i := range list {
			for j := range list[i].Routes {
				if all := list[i].Routes[j].URLs; rank < len(all) && !slices.Contains(out, all[rank]) {
					out = append(out, all[rank])
				}
			}
		}
	}
	return out
}

// CheckFilters returns an error if the region or the worker in a list's filters does not exist. It
// does not check a filter that is "". The worker is not checked if the token does not permit
// listing workers.
func (s *Shell) CheckFilters(ctx context.Context, region bourse.Region, worker bourse.WorkerID) error {
	if region != "" {
		list, err := s.Client().Regions(ctx)
		if err != nil {
			return err
		}
		known := make([]bourse.Region, len(list.Regions))
		for i, r := range list.Regions {
			known[i] = r.Code
		}
		if _, err := bourse.ParseRegions(string(region), known); err != nil {
			return err
		}
	}
	if worker == "" {
		return nil
	}
	list, err := s.Client().Workers(ctx)
	if bourse.CodeOf(err) == bourse.CodeForbidden {
		return nil
	}
	if err != nil || slices.ContainsFunc(list, func(w machinesapi.Worker) bool { return w.ID == worker }) {
		return err
	}
	return Hint(bourse.Errorf(bourse.CodeNotFound, "worker %s not found", bourse.Quoted(string(worker))), "bourse worker list")
}
