package serve

import (
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/internal/admission"
)

// ProxyConfig is the whole configuration of "bourse serve proxy".
type ProxyConfig struct {
	ServerConfig
	Data    string          // directory for what may be lost: the view; and for what a CA has issued; "" means none
	Name    bourse.WorkerID // of the server in the membership; default made up
	HTTP    []WebListen
	HTTPS   []WebListen
	TCP     []StreamListen
	Domains []string                  // below which each app has its name
	Hosts   map[string]bourse.AppName // further names of apps
	Certs   CertsConfig
	Behind  []netip.Prefix // load balancers that begin connections with a PROXY header
	Trusted []netip.Prefix // proxies before this one whose X-Forwarded-For is believed
	Most    int            // open connections of one listener; 0: the default
	Drain   time.Duration  // for what is in progress when the proxy ends
	Hold    bool           // connections that changed protocols, and streams, keep their machine running while they are open
}

// CertsConfig is where the certificates of host names come from.
type CertsConfig struct {
	Dir        string // of files; "" means none
	Email      string // for the ACME CA that issues the others; "" means that none is asked
	CA         string // URL of its directory; "" means Let's Encrypt
	SelfSigned bool   // made here where there is no other
}

// bind binds the flags to the config.
func (c *ProxyConfig) bind(flags *pflag.FlagSet) {
	b := c.ServerConfig.bind(flags, "127.0.0.1:0")
	flags.Lookup("listen").Usage = "address for the other servers of the cluster, `IP:PORT`; port 0 means any free one"
	flags.StringVarP((*string)(&c.Region), "region", "r", "", "the `region` that this proxy is in: machines there come first")
	flags.StringVar(&c.Data, "data", "", "`directory` for its copy of the view, so that a restart need not fetch all of it, and for what --acme has obtained (default: a temporary one)")
	flags.StringVarP((*string)(&c.Name), "name", "n", "", "`name` in the membership (default: made up)")
	readsAll(b, &c.HTTP, "http", "serve HTTP at `IP:PORT`, as port 80 of services; as another: IP:PORT=PORT; as any: IP:PORT=any; may be repeated", parseWeb(80))
	readsAll(b, &c.HTTPS, "https", "serve HTTPS at `IP:PORT`, as port 443 of services, or as others as with --http; may be repeated", parseWeb(443))
	readsAll(b, &c.TCP, "tcp", "pass on what comes at an address to a port of an app's services, `IP:PORT=APP:PORT`, such as :5432=db:5432; may be repeated", parseStreams)
	flags.StringSliceVar(&c.Domains, "domain", nil, "`names` below which each app has its own, comma separated: with example.com app web is web.example.com; localhost is always one")
	readsAll(b, &c.Hosts, "host", "a further name of an app, `NAME=APP`; may be repeated", parseHosts)
	flags.StringVar(&c.Certs.Dir, "certificates", "", "`directory` of certificates for --https: NAME.pem with NAME.key, or directories as certbot makes them; read again when they change")
	flags.StringVar(&c.Certs.Email, "acme", "", "obtain certificates that are not in --certificates by ACME, with this `email` address for the CA; needs --data, and an --http that is reached at port 80")
	flags.StringVar(&c.Certs.CA, "acme-ca", "", "`URL` of the ACME CA's directory (default: Let's Encrypt)")
	flags.BoolVar(&c.Certs.SelfSigned, "self-signed", false, "make certificates for the names that have no other")
	readsAll(b, &c.Behind, "proxy-protocol-from", "addresses or `networks` of load balancers, which begin each connection with a PROXY header (v1 or v2), comma separated", parsePrefixes)
	readsAll(b, &c.Trusted, "trust-forwarded-from", "addresses or `networks` of proxies whose X-Forwarded-For and X-Forwarded-Proto are believed, comma separated", parsePrefixes)
	flags.IntVar(&c.Most, "connections", 0, "`number` of open connections of one listener, an eighth of it from one address (default 32768)")
	flags.DurationVar(&c.Drain, "drain", 20*time.Second, "`time` that requests in progress have when the proxy is asked to end")
	flags.BoolVar(&c.Hold, "hold-open", false, "keep machines running while a WebSocket or TCP connection to them is open, also if no bytes flow")
}

// settle completes the config once the flags are parsed. A proxy on NATS for which --gossip
// or --join was given is also in the membership of servers that are not on NATS.
func (c *ProxyConfig) settle(flags *pflag.FlagSet) error {
	if err := c.ServerConfig.settle(flags, bourse.RoleProxy, &c.Name); err != nil {
		return err
	}
	c.viewIn(c.Data)
	c.NATS.Both = c.NATS.Set() && (flags.Changed("gossip") || len(c.Join) > 0)
	if len(c.HTTP)+len(c.HTTPS)+len(c.TCP) == 0 {
		c.HTTP = []WebListen{{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 8080), 0}}
	}
	if !slices.Contains(c.Domains, "localhost") {
		c.Domains = append(c.Domains, "localhost")
	}
	return nil
}

// Validate reports every problem of the config at once, as CodeInvalid.
func (c *ProxyConfig) Validate() error {
	problems := c.problems([]admission.Safeguard{admission.TLS}, nil)
	if c.Name != "" {
		problems = append(problems, cli.FlagError("--name", c.Name.Validate()))
	}
	for _, d := range c.Domains {
		problems = append(problems, cli.FlagError("--domain", admission.CheckName(d)))
	}
	if c.Certs.Email != "" && (c.Data == "" || len(c.HTTP) == 0) {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--acme needs --data, where certificates are kept, and --http, where the CA looks"))
	}
	if u, err := url.Parse(c.Certs.CA); c.Certs.CA != "" && (err != nil || u.Scheme != "https" || u.Host == "" || c.Certs.Email == "") {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--acme-ca %s: use https://HOST/PATH, together with --acme", bourse.Quoted(c.Certs.CA)))
	}
	if len(c.HTTPS) > 0 && c.Certs == (CertsConfig{CA: c.Certs.CA}) {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--https needs certificates: --certificates DIR, --acme EMAIL or --self-signed"))
	}
	if c.Most < 0 {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--connections %d: use 1 or more", c.Most))
	}
	if c.Drain < 0 || c.Drain > time.Hour {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--drain %s: use at most 1h", c.Drain))
	}
	return cli.JoinProblems(problems)
}
