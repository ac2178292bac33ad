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

// DefaultAPI is where a broker listens and where the verbs look for one,
// by default.
const DefaultAPI = "127.0.0.1:4280"

// baseURL returns the API's address with its scheme.
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

// Client returns the client of the API.
func (s *Shell) Client() *machinesapi.Client {
	token, base := s.credential()
	return &machinesapi.Client{BaseURL: base, Token: token, HTTP: &http.Client{Transport: s.target().transport}}
}

// credential returns the token that is shown to the API, and the URL that it is shown
// at: the token of --token, of the context, of the environment unless a context was
// chosen, or of a broker on loopback the one that it made. It is "" if there is none.
func (s *Shell) credential() (token, base string) {
	t := s.target()
	token, base = cmp.Or(s.token, t.Token), s.baseURL()
	if token == "" && !t.named {
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

// WarnMissing warns which workers' machines, or what else, a list lacks.
func (s *Shell) WarnMissing(silent []bourse.WorkerID, what string) {
	if len(silent) > 0 {
		names := make([]string, len(silent))
		for i, w := range silent {
			names[i] = Clean(string(w))
		}
		s.Note("warning: no answer from " + strings.Join(names, ", ") + ": their " + what + " are missing here")
	}
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

// Passing reports whether a failure is the connection's or the server's moment,
// and not what was asked for.
func Passing(err error) bool {
	switch bourse.CodeOf(err) {
	case bourse.CodeUnavailable, bourse.CodeRateLimited:
		return true
	case bourse.CodeTimeout: // of what was asked for, unless it is a proxy's on the way
		reply, ok := errors.AsType[*machinesapi.ReplyError](err)
		return ok && reply.Status >= http.StatusInternalServerError
	default:
		return false
	}
}

// Backoff is how long to wait until the next try: longer each time. Its zero value
// is for the first.
type Backoff struct{ next time.Duration }

// Bounds of a Backoff.
const (
	backoffFirst = 250 * time.Millisecond
	BackoffMost  = 10 * time.Second
)

// Wait waits for the next try, or returns why ctx has ended. It waits half of its
// time at least, and the rest by chance, so that the clients of a lost server do
// not come back all at once.
func (b *Backoff) Wait(ctx context.Context) error {
	wait := max(b.next, backoffFirst)
	b.next = min(2*wait, BackoffMost)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(wait/2 + rand.N(wait/2+1)):
		return nil
	}
}

// Reset begins again with short waits. It is called after a try that went well for
// so long.
func (b *Backoff) Reset(lasted time.Duration) {
	if lasted > BackoffMost {
		b.next = 0
	}
}

// URLs returns the URLs at which proxies serve what they route, without duplicates, the
// best of each proxy first.
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

// CheckFilters returns an error if the region or worker by which a list was filtered
// does not exist; "" means no filter. It does not check the worker if the token may not
// list workers.
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
