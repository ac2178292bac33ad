package cli

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

// ServerConfig is what every server has: where it listens, whom it joins, how
// it proves who it is, and how it says that it is ready.
type ServerConfig struct {
	Listen     netip.AddrPort // of its API; port 0 means any
	Gossip     netip.AddrPort // of its membership; port 0 means any
	Join       []string       // gossip addresses of others, host:port
	Region     bourse.Region  // where it stands; a broker's may be empty
	TLS        TLSFiles       // all three, or none
	NATS       NATSConfig     //
	Cluster    string         // the cluster's name: servers of another one are not heard
	View       string         // file of the view; "" means a temporary one, removed at the end
	GossipKey  string         // file with the group's key, base64 or hex; "" means none
	Names      []string       // by which clients call the server, beside IP addresses, localhost and what its certificate says
	Insecure   bool           // allow other than loopback without credentials, aloud
	ReadyFile  string         // written once ready, removed at the end; "" means none
	Log        LogConfig      //
	LifeLine   bool           // end when standard input ends: whoever started it is gone
	rejections []error        // of flags that could not be read
}

// DefaultCluster is the name of a cluster that was given none.
const DefaultCluster = "bourse"

// viewFile is the view's file in a server's data directory.
const viewFile = "view.db"

// viewIn puts the view into the data directory, unless it has a place.
func (c *ServerConfig) viewIn(data string) {
	if c.View == "" && data != "" {
		c.View = filepath.Join(data, viewFile)
	}
}

// clusterName is what a cluster may be called.
var clusterName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$`)

// TLSFiles names the PEM files of a server's certificate and of the CA that
// it trusts.
type TLSFiles struct{ CA, Cert, Key string }

// Set tells whether TLS was asked for.
func (t TLSFiles) Set() bool { return t != TLSFiles{} }

// LogConfig says what a server logs, to standard error.
type LogConfig struct {
	Level  slog.Level
	Format string // text or json
}

// Logger makes the server's logger.
func (l LogConfig) Logger(w *os.File) *slog.Logger {
	o := &slog.HandlerOptions{Level: l.Level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// serverFlags are the flags of a ServerConfig as they are typed.
type serverFlags struct {
	listen, gossip, region string
	join                   []string
	logLevel, logFormat    string
	config                 ServerConfig
}

func (f *serverFlags) bind(flags *pflag.FlagSet, listen string) {
	flags.StringVar(&f.listen, "listen", listen, "address of the API, `IP:PORT`; port 0 means any free one")
	flags.StringVar(&f.gossip, "gossip", "127.0.0.1:0", "address of the membership, `IP:PORT`, TCP and UDP")
	flags.StringVar(&f.config.Cluster, "cluster", DefaultCluster, "`name` of the cluster: servers of another one are not heard")
	flags.StringVar(&f.config.View, "view", "", "`file` of the view, this server's copy of the whole cluster; it may be deleted at any time (default: "+viewFile+" in --data)")
	flags.StringSliceVar(&f.join, "join", nil, "gossip addresses of other servers, `HOST:PORT`, comma separated")
	f.config.NATS.bind(flags)
	flags.StringVar(&f.config.TLS.CA, "tls-ca", "", "PEM `file` of the cluster's CA")
	flags.StringVar(&f.config.TLS.Cert, "tls-cert", "", "PEM `file` of this server's certificate")
	flags.StringVar(&f.config.TLS.Key, "tls-key", "", "PEM `file` of its key")
	flags.StringSliceVar(&f.config.Names, "server-name", nil, "DNS `names` by which clients call this server, beside those in its certificate, comma separated; a request for another name gets 421")
	flags.StringVar(&f.config.GossipKey, "gossip-key", "", "`file` with the key that encrypts the membership (16, 24 or 32 bytes, base64 or hex)")
	flags.BoolVar(&f.config.Insecure, "insecure", false, "listen beyond loopback without credentials: for test networks only")
	flags.StringVar(&f.config.ReadyFile, "ready-file", "", "write {id, role, region, api, gossip, pid} as JSON to this `file` once ready")
	flags.StringVar(&f.logLevel, "log-level", "info", "`level`: debug, info, warn or error")
	flags.StringVar(&f.logFormat, "log-format", "text", "`format`: text or json")
	bindLifeLine(flags, &f.config.LifeLine)
}

// read turns the flags into a config; what cannot be read is kept for
// Validate, so that all problems are told at once.
func (f *serverFlags) read() ServerConfig {
	c := f.config
	reject := func(err error) {
		if err != nil {
			c.rejections = append(c.rejections, err)
		}
	}
	var err error
	c.Listen, err = parseListen(f.listen)
	reject(named("--listen", err))
	c.Gossip, err = parseListen(f.gossip)
	reject(named("--gossip", err))
	c.Join = f.join
	c.Region = bourse.Region(f.region)
	if err := c.Log.Level.UnmarshalText([]byte(f.logLevel)); err != nil {
		reject(bourse.Errorf(bourse.CodeInvalid, "--log-level %s: use debug, info, warn or error", bourse.Quoted(f.logLevel)))
	}
	c.Log.Format = f.logFormat
	return c
}

// problems gives everything that is wrong with the config. api is what makes
// the API safe to be reached from other hosts, has what there is of it.
func (c *ServerConfig) problems(api, has []admission.Safeguard) []error {
	problems := c.rejections
	for _, j := range c.Join {
		if _, _, err := net.SplitHostPort(j); err != nil {
			problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--join %s: use HOST:PORT", bourse.Quoted(j)))
		}
	}
	if !clusterName.MatchString(c.Cluster) {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--cluster %s: use 1 to 64 letters, digits, dots, dashes and underscores, with a letter or digit at both ends", bourse.Quoted(c.Cluster)))
	}
	if c.Region != "" {
		problems = append(problems, named("--region", c.Region.Validate()))
	}
	for _, name := range c.Names {
		problems = append(problems, named("--server-name", admission.CheckName(name)))
	}
	t := c.TLS
	if t.Set() && (t.CA == "" || t.Cert == "" || t.Key == "") {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--tls-ca, --tls-cert and --tls-key go together: give all three or none"))
	}
	if c.Log.Format != "text" && c.Log.Format != "json" {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--log-format %s: use text or json", bourse.Quoted(c.Log.Format)))
	}
	if t.Set() {
		has = append(has, admission.TLS)
	}
	if c.GossipKey != "" {
		has = append(has, admission.GossipKey)
	}
	problems = append(problems, c.NATS.problems(c.Insecure, t.Set())...)
	for _, l := range []admission.Listen{
		{What: "the API", Addr: c.Listen, Needs: api, Has: has},
		{What: "the membership", Addr: c.Gossip, Needs: []admission.Safeguard{admission.GossipKey}, Has: has},
	} {
		if l.Addr.IsValid() { // one that could not be read has been told of
			problems = append(problems, admission.CheckListen(l, c.Insecure))
		}
	}
	return problems
}

// joined makes one CodeInvalid error of all problems, or nil.
func joined(problems []error) error {
	if err := errors.Join(problems...); err != nil {
		return &bourse.Error{Code: bourse.CodeInvalid, Message: err.Error(), Err: err}
	}
	return nil
}

// named says which flag an error is about.
func named(flag string, err error) error {
	if err == nil {
		return nil
	}
	return bourse.Errorf(bourse.CodeOf(err), "%s: %w", flag, err)
}
