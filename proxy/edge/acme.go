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

// acmeALPN is the protocol that an ACME CA offers in the handshake when it validates a host name
// with TLS-ALPN.
const acmeALPN = "acme-tls/1"

// ACMEConfig specifies the CA, and the host names for which certificates may be requested.
type ACMEConfig struct {
	Email   string                  // contact address for the CA
	CA      string                  // directory URL; "": Let's Encrypt
	Roots   *x509.CertPool          // roots for verifying the CA's own certificate; nil: the host's roots
	Storage string                  // directory for the account, certificates and keys
	HTTP    netip.AddrPort          // address of the listener for HTTP-01 challenges, which the CA sends to port 80
	Allowed func(name string) error // returns an error if no certificate may be requested for the name
	Log     *slog.Logger
}

// ACME obtains a certificate from a CA when a client first requests a host name, and renews the
// certificate before it expires.
type ACME struct {
	allowed func(string) error
	cache   *certmagic.Cache
	config  *certmagic.Config
	issuer  *certmagic.ACMEIssuer
	log     *slog.Logger

	mu     sync.Mutex
	failed map[string]issueBackoff // host names for which the CA recently failed to issue a certificate
}

// issueBackoff delays the next request for a host name after the CA has failed to issue a certificate for it. It is
// necessary because CAs limit the rate of requests.
type issueBackoff struct {
	until time.Time
	pause time.Duration
}

const (
	firstPause  = time.Minute
	maxPause    = 6 * time.Hour
	maxFailures = 4096 // maximum number of names in ACME.failed; the map is cleared when it is exceeded
	issueTime   = 90 * time.Second
)

// NewACME returns an ACME. It does not contact the CA yet. It starts a goroutine of the certmagic library, which ends
// when Run returns.
func NewACME(c ACMEConfig) *ACME {
	a := &ACME{allowed: c.Allowed, log: c.Log, failed: map[string]issueBackoff{}}
	quiet := zap.NewNop() // discard certmagic's logs, because its events contain all relevant information
	a.cache = certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return a.config, nil }, Logger: quiet,
	})
	a.config = certmagic.New(a.cache, certmagic.Config{
		Storage: &certmagic.FileStorage{Path: c.Storage}, Logger: quiet, OnEvent: a.event,
		OnDemand: &certmagic.OnDemandConfig{DecisionFunc: func(_ context.Context, name string) error { return a.checkAllowed(name) }},
	})
	a.issuer = certmagic.NewACMEIssuer(a.config, certmagic.ACMEIssuer{
		CA: cmp.Or(c.CA, certmagic.LetsEncryptProductionCA), Email: c.Email, Agreed: true, TrustedRoots: c.Roots, Logger: quiet,
		// The proxy's own listener answers the challenges, because it already uses the port.
		DisableTLSALPNChallenge: true, ListenHost: c.HTTP.Addr().String(), AltHTTPPort: int(c.HTTP.Port()), CertObtainTimeout: issueTime,
	})
	a.config.Issuers = []certmagic.Issuer{a.issuer}
	return a
}

// Run waits until ctx is done, and then stops certmagic's goroutine.
func (a *ACME) Run(ctx context.Context) error {
	<-ctx.Done()
	a.cache.Stop()
	return nil
}

// Handler returns a handler that answers the CA's HTTP-01 challenges and passes all other
// requests to h.
func (a *ACME) Handler(h http.Handler) http.Handler { return a.issuer.HTTPChallengeHandler(h) }

// get returns a certificate for the host name that a client requests. If there is no certificate yet, it obtains one.
func (a *ACME) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return a.config.GetCertificate(hello)
}

// checkAllowed returns an error if the proxy may not request certificates for a name, or must wait before the next
// request.
func (a *ACME) checkAllowed(name string) error {
	if err := a.allowed(name); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if f, ok := a.failed[name]; ok && time.Now().Before(f.until) {
		return bourse.Errorf(bourse.CodeUnavailable, "the CA did not issue a certificate for %s: next attempt at %s", bourse.Quoted(name), f.until.Format(time.TimeOnly))
	}
	return nil
}

// event handles a certmagic event by recording whether a certificate was issued.
func (a *ACME) event(_ context.Context, what string, data map[string]any) error {
	name, _ := data["identifier"].(string)
	switch what {
	case "cert_obtained":
		a.log.Info("certificate issued", slog.String("name", name), slog.Any("renewal", data["renewal"]))
		a.mu.Lock()
		delete(a.failed, name)
		a.mu.Unlock()
	case "cert_failed":
		a.log.Warn("issue certificate failed", slog.String("name", name), slog.String("err", fmt.Sprint(data["error"])))
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
