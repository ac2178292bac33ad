package nats

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"time"

	client "github.com/nats-io/nats.go"

	"github.com/bourse-dev/bourse"
)

// Config configures a link to a NATS network.
type Config struct {
	URLs    []string // required: nats://, tls://, ws:// or wss:// addresses of one NATS cluster; may contain user:password@ or token@
	Cluster string   // name of the cluster, part of all subjects; default "bourse"; may consist of several tokens of letters, digits, "-" and "_"
	Name    string   // name of the connection in the NATS server's list of connections; optional
	// CA returns the CAs that sign the NATS servers' certificates. It is called for each connection. If CA is nil, the
	// system's CAs are used.
	CA func() *x509.CertPool
	// Certificate returns the client certificate for the NATS servers. If Certificate is nil, no certificate is used.
	Certificate func() tls.Certificate
	Creds       string       // file with a user's JWT and seed; optional
	NKey        string       // file with a user's seed; optional
	Token       string       // token for NATS servers whose URL contains no user; optional
	Log         *slog.Logger // default: discards all records
	// PeerTimeout is how long the other end of a connection may be silent before the connection is reset; default 6 s.
	// If the other end has been silent for a third of this time, it is pinged.
	PeerTimeout time.Duration
	// Window is the maximum number of unread bytes that a connection buffers; default 1 MiB. It limits both the memory
	// for a slow reader's data and the amount of data in transit.
	Window int
}

const (
	defaultPeerTimeout = 6 * time.Second
	defaultWindow      = 1 << 20
	maxSubject         = 128 // maximum length of Cluster in bytes
)

var subjectText = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

func (c Config) withDefaults() Config {
	c.Cluster = cmp.Or(c.Cluster, "bourse")
	c.PeerTimeout = cmp.Or(c.PeerTimeout, defaultPeerTimeout)
	c.Window = cmp.Or(c.Window, defaultWindow)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate returns CodeInvalid if the configuration is invalid.
func (c *Config) Validate() error {
	if len(c.URLs) == 0 {
		return bourse.Errorf(bourse.CodeInvalid, "no NATS server address configured")
	}
	for _, u := range c.URLs {
		if err := ValidateURL(u); err != nil {
			return err
		}
	}
	if !subjectText.MatchString(c.Cluster) || len(c.Cluster) > maxSubject {
		return bourse.Errorf(bourse.CodeInvalid, "cluster %s: use letters, digits, \"-\" and \"_\" between dots", bourse.Quoted(c.Cluster))
	}
	if c.Creds != "" && c.NKey != "" {
		return bourse.Errorf(bourse.CodeInvalid, "credentials and an nkey are mutually exclusive")
	}
	return nil
}

// ValidateURL returns CodeInvalid unless s is a valid URL of a NATS server.
func ValidateURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "":
		return bourse.Errorf(bourse.CodeInvalid, "%s is not the address of a NATS server: use nats://HOST:PORT", bourse.Quoted(s))
	case u.Scheme != "nats" && u.Scheme != "tls" && u.Scheme != "ws" && u.Scheme != "wss":
		return bourse.Errorf(bourse.CodeInvalid, "%s: use nats://, tls://, ws:// or wss://", bourse.Quoted(s))
	}
	return nil
}

const (
	connectTimeout = 2 * time.Second
	pingEvery      = 5 * time.Second // interval between pings to the NATS server
	maxPingsLost   = 2               // number of unanswered pings after which the NATS server is considered dead
	reconnectEvery = 100 * time.Millisecond
	// pendingBytes is the maximum size of the receive queue; beyond it, messages are dropped. The connections' windows
	// limit the queue, so it reaches this size only if the process was suspended.
	pendingBytes = 256 << 20
)

// options returns the options for the client library.
func (c *Config) options(l *Link) ([]client.Option, error) {
	o := []client.Option{
		client.Name(c.Name), client.Timeout(connectTimeout),
		client.PingInterval(pingEvery), client.MaxPingsOutstanding(maxPingsLost),
		client.MaxReconnects(-1), client.ReconnectWait(reconnectEvery), client.ReconnectJitter(reconnectEvery, reconnectEvery),
		client.RetryOnFailedConnect(true),
		// Fail immediately if a message cannot be sent now. If it were sent later, a call that the caller has already
		// given up on could still take effect.
		client.ReconnectBufSize(-1),
		client.DisconnectErrHandler(l.disconnected), client.ReconnectHandler(l.reconnected), client.ErrorHandler(l.asyncError),
	}
	if c.CA != nil || c.Certificate != nil {
		o = append(o, client.ClientTLSConfig(c.certificate(), c.ca()))
	}
	if c.Token != "" {
		o = append(o, client.Token(c.Token))
	}
	if c.Creds != "" {
		o = append(o, client.UserCredentials(c.Creds))
	}
	if c.NKey != "" {
		key, err := client.NkeyOptionFromSeed(c.NKey)
		if err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "the nkey of %s: %w", c.NKey, err)
		}
		o = append(o, key)
	}
	return o, nil
}

// certificate returns the function that provides the client certificate. The client library calls it for each
// connection.
func (c *Config) certificate() client.TLSCertHandler {
	if c.Certificate == nil {
		return nil
	}
	return func() (tls.Certificate, error) { return c.Certificate(), nil }
}

func (c *Config) ca() client.RootCAsHandler {
	if c.CA == nil {
		return nil
	}
	return func() (*x509.CertPool, error) { return c.CA(), nil }
}

func (c *Config) servers() string { return strings.Join(c.URLs, ",") }
