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

// Config is the NATS network of a link.
type Config struct {
	URLs    []string // required: nats://, tls://, ws:// or wss://, of one cluster; user:password@ and token@ are taken from it
	Prefix  string   // of all subjects; default "bourse". Its tokens: letters, digits, "-" and "_"
	Cluster string   // the cluster's name, a token or several after the prefix; default "bourse"
	Name    string   // of the connection, as the NATS server lists it; optional
	// CA returns those that the NATS servers' certificates are of, for the next
	// connection; nil: the system's.
	CA func() *x509.CertPool
	// Certificate returns what is shown to the NATS servers; nil: none.
	Certificate func() tls.Certificate
	Creds       string       // file of a user's JWT and seed; optional
	NKey        string       // file of a user's seed; optional
	Token       string       // shown to NATS servers whose URL names no user; optional
	Log         *slog.Logger // default: none
	// Patience is how long another end may send no sign of life before its
	// connections are reset; default 6 s. It is asked for one every third of it.
	Patience time.Duration
	// Window is how many bytes of a connection may wait to be read; default
	// 1 MiB. It bounds what a slow reader costs, and how much is in flight.
	Window int
}

const (
	defaultPatience = 6 * time.Second
	defaultWindow   = 1 << 20
	maxSubject      = 128 // bytes of prefix and cluster
)

var subjectText = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

func (c Config) withDefaults() Config {
	c.Prefix = cmp.Or(c.Prefix, "bourse")
	c.Cluster = cmp.Or(c.Cluster, "bourse")
	c.Patience = cmp.Or(c.Patience, defaultPatience)
	c.Window = cmp.Or(c.Window, defaultWindow)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate reports CodeInvalid for a config that no link can have.
func (c *Config) Validate() error {
	if len(c.URLs) == 0 {
		return bourse.Errorf(bourse.CodeInvalid, "no address of a NATS server")
	}
	for _, u := range c.URLs {
		if err := ValidateURL(u); err != nil {
			return err
		}
	}
	if s := c.Prefix + "." + c.Cluster; !subjectText.MatchString(s) || len(s) > maxSubject {
		return bourse.Errorf(bourse.CodeInvalid, "subject prefix %s: use letters, digits, \"-\" and \"_\" between dots", bourse.Quoted(s))
	}
	if c.Creds != "" && c.NKey != "" {
		return bourse.Errorf(bourse.CodeInvalid, "credentials and an nkey: give one of them")
	}
	return nil
}

// ValidateURL reports CodeInvalid unless s is the address of a NATS server.
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
	pingEvery      = 5 * time.Second // to the NATS server
	pingsLost      = 2               // then it is considered dead
	reconnectEvery = 100 * time.Millisecond
	// pendingBytes is what may wait in this process before messages are
	// dropped. Connections are bounded by their windows; it is reached only
	// when the process is stopped.
	pendingBytes = 256 << 20
)

// options returns the options of the client library.
func (c *Config) options(l *Link) ([]client.Option, error) {
	o := []client.Option{
		client.Name(c.Name), client.Timeout(connectTimeout),
		client.PingInterval(pingEvery), client.MaxPingsOutstanding(pingsLost),
		client.MaxReconnects(-1), client.ReconnectWait(reconnectEvery), client.ReconnectJitter(reconnectEvery, reconnectEvery),
		client.RetryOnFailedConnect(true),
		// What cannot be sent now is an error now. Sent late it would do harm.
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

// certificate and ca are what the client library calls for each connection.
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
