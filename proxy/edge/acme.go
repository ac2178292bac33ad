package edge

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/bourse-dev/bourse"
)

// acmeALPN is what a CA that looks at a host says it speaks.
const acmeALPN = "acme-tls/1"

// ACMEConfig is which CA certificates come from, and for which names.
type ACMEConfig struct {
	Email   string                  // of who is told of problems
	CA      string                  // URL of the CA's directory; "": Let's Encrypt
	Roots   *x509.CertPool          // that the CA itself is known by; nil: the host's
	Storage string                  // directory of the account, certificates and keys
	HTTP    netip.AddrPort          // of the listener that answers HTTP-01; it is port 80 from outside
	Allowed func(name string) error // may a certificate be asked for
	Log     *slog.Logger
}

// ACME has the certificates that a CA issues when a client first asks for a name. It
// renews them.
type ACME struct {
	allowed func(string) error
	cache   *certmagic.Cache
	config  *certmagic.Config
	issuer  *certmagic.ACMEIssuer
	log     *slog.Logger

	mu     sync.Mutex
	failed map[string]issueBackoff // names for which none was issued
}

// failure is when a name may be asked for again: a CA counts what is asked of it.
type issueBackoff struct {
	until time.Time
	pause time.Duration
}

const (
	firstPause  = time.Minute
	maxPause    = 6 * time.Hour
	maxFailures = 4096 // names; then they are forgotten
	issueTime   = 90 * time.Second
)

// NewACME makes what asks a CA. It asks nothing yet, and holds a goroutine of the
// library's until Run has returned.
func NewACME(c ACMEConfig) *ACME {
	a := &ACME{allowed: c.Allowed, log: c.Log, failed: map[string]issueBackoff{}}
	quiet := zap.NewNop() // what matters of it comes as events
	a.cache = certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return a.config, nil }, Logger: quiet,
	})
	a.config = certmagic.New(a.cache, certmagic.Config{
		Storage: &certmagic.FileStorage{Path: c.Storage}, Logger: quiet, OnEvent: a.event,
		OnDemand: &certmagic.OnDemandConfig{DecisionFunc: func(_ context.Context, name string) error { return a.checkAllowed(name) }},
	})
	a.issuer = certmagic.NewACMEIssuer(a.config, certmagic.ACMEIssuer{
		CA: cmp.Or(c.CA, certmagic.LetsEncryptProductionCA), Email: c.Email, Agreed: true, TrustedRoots: c.Roots, Logger: quiet,
		// Our own listener answers: the library finds its port taken.
		DisableTLSALPNChallenge: true, ListenHost: c.HTTP.Addr().String(), AltHTTPPort: int(c.HTTP.Port()), CertObtainTimeout: issueTime,
	})
	a.config.Issuers = []certmagic.Issuer{a.issuer}
	return a
}

// Run waits for ctx to end and releases what New holds.
func (a *ACME) Run(ctx context.Context) error {
	<-ctx.Done()
	a.cache.Stop()
	return nil
}

// Handler returns h behind what answers the CA's HTTP-01 requests.
func (a *ACME) Handler(h http.Handler) http.Handler { return a.issuer.HTTPChallengeHandler(h) }

// get returns the certificate of the client's name; it is obtained if there is none.
func (a *ACME) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return a.config.GetCertificate(hello)
}

// may reports whether a certificate may be asked for.
func (a *ACME) checkAllowed(name string) error {
	if err := a.allowed(name); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if f, ok := a.failed[name]; ok && time.Now().Before(f.until) {
		return bourse.Errorf(bourse.CodeUnavailable, "the CA issued no certificate for %s: it is asked again at %s", bourse.Quoted(name), f.until.Format(time.TimeOnly))
	}
	return nil
}

// event notes what became of a name.
func (a *ACME) event(_ context.Context, what string, data map[string]any) error {
	name, _ := data["identifier"].(string)
	switch what {
	case "cert_obtained":
		a.log.Info("a certificate was issued", slog.String("name", name), slog.Any("renewal", data["renewal"]))
		a.mu.Lock()
		delete(a.failed, name)
		a.mu.Unlock()
	case "cert_failed":
		a.log.Warn("no certificate was issued", slog.String("name", name), slog.String("err", fmt.Sprint(data["error"])))
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.failed) >= maxFailures {
			clear(a.failed)
		}
		pause := min(max(firstPause, 2*a.failed[name].pause), maxPause)
		a.failed[name] = issueBackoff{time.Now().Add(pause), pause}
	}
	return nil
}
