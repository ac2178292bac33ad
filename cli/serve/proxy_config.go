package serve

import (
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

// ProxyConfig is the configuration of "bourse serve proxy".
type ProxyConfig struct {
	ServerConfig
	Data           string          // directory for the view, which may be lost, and for ACME certificates; "" means none
	Name           bourse.WorkerID // the server's name in the membership; "" means a generated one
	HTTP           []WebListen
	HTTPS          []WebListen
	TCP            []StreamListen
	Domains        []string                  // domains below which each app has a host name
	Hosts          map[string]bourse.AppName // additional host names of apps
	Certs          CertsConfig
	LoadBalancers  []netip.Prefix // load balancers that send a PROXY header
	Trusted        []netip.Prefix // upstream proxies whose X-Forwarded-For is trusted
	MaxConnections int            // maximum number of open connections per listener; 0 means the default
	Drain          time.Duration  // how long requests in progress may take when the proxy stops
	HoldOpen       bool           // whether open WebSockets and streams keep their machine running
}

// CertsConfig configures the source of certificates for host names.
type CertsConfig struct {
	Dir        string // directory with certificate files; "" means none
	Email      string // email address for the ACME CA that issues all other certificates; "" disables ACME
	CA         string // directory URL of the ACME CA; "" means Let's Encrypt
	SelfSigned bool   // whether to create certificates for names that have no other
}

// bind binds the flags to the config.
func (c *ProxyConfig) bind(flags *pflag.FlagSet) {
	b := c.ServerConfig.bind(flags, bourse.RoleProxy)
	flags.StringVarP((*string)(&c.Region), "region", "r", "", "`region` of this proxy, whose machines are preferred")
	flags.StringVar(&c.Data, "data", "", "`directory` for the proxy's copy of the view, so that it need not be fetched again after a restart, and for ACME certificates (default: a temporary directory)")
	flags.StringVarP((*string)(&c.Name), "name", "n", "", "`name` in the membership (default: generated)")
	bindAll(b, &c.HTTP, "http", "address to serve HTTP at, `IP:PORT`, for port 80 of services; use IP:PORT=PORT for another port and IP:PORT=any for any port; may be repeated", parseWeb(80))
	bindAll(b, &c.HTTPS, "https", "address to serve HTTPS at, `IP:PORT`, for port 443 of services, or for other ports as with --http; may be repeated", parseWeb(443))
	bindAll(b, &c.TCP, "tcp", "address whose connections are forwarded to a port of an app's services, `IP:PORT=APP:PORT`, such as :5432=db:5432; may be repeated", parseStreams)
	flags.StringSliceVar(&c.Domains, "domain", nil, "`domains` below which each app has a name, separated by commas: with example.com, app web is web.example.com; localhost is always included")
	bindAll(b, &c.Hosts, "host", "additional host name of an app, `NAME=APP`; may be repeated", parseHosts)
	flags.StringVar(&c.Certs.Dir, "certificates", "", "`directory` with certificates for --https: NAME.pem and NAME.key, or directories like certbot's; read again when they change")
	flags.StringVar(&c.Certs.Email, "acme", "", "`email` address for the ACME CA, from which certificates that are not in --certificates are obtained; requires --data, and an --http address that is accessible at port 80")
	flags.StringVar(&c.Certs.CA, "acme-ca", "", "directory `URL` of the ACME CA (default: Let's Encrypt)")
	flags.BoolVar(&c.Certs.SelfSigned, "self-signed", false, "create self-signed certificates for names that have no other certificate")
	bindAll(b, &c.LoadBalancers, "proxy-protocol-from", "addresses or `networks` of load balancers that send a PROXY header (v1 or v2) at the start of each connection, separated by commas", parsePrefixes)
	bindAll(b, &c.Trusted, "trust-forwarded-from", "addresses or `networks` of proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted, separated by commas", parsePrefixes)
	flags.IntVar(&c.MaxConnections, "connections", 0, "maximum `number` of open connections per listener; an eighth of them may come from the same address (default: 32768)")
	flags.DurationVar(&c.Drain, "drain", 20*time.Second, "`time` for requests in progress to finish when the proxy stops")
	flags.BoolVar(&c.HoldOpen, "hold-open", false, "keep machines running while a WebSocket or TCP connection to them is open, even if it is idle")
}

// complete completes the config once the flags are parsed.
func (c *ProxyConfig) complete(flags *pflag.FlagSet) []error {
	problems := c.ServerConfig.completeServer(flags, bourse.RoleProxy, &c.Name)
	c.viewIn(c.Data)
	if len(c.HTTP)+len(c.HTTPS)+len(c.TCP) == 0 {
		c.HTTP = []WebListen{{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 8080), 0}}
	}
	if !slices.Contains(c.Domains, "localhost") {
		c.Domains = append(c.Domains, "localhost")
	}
	return problems
}

func (c *ProxyConfig) problems() []error {
	problems := c.serverProblems([]admission.Safeguard{admission.TLS}, nil)
	if c.Name != "" {
		problems = append(problems, flagError("name", c.Name.Validate()))
	}
	for _, d := range c.Domains {
		problems = append(problems, flagError("domain", admission.CheckName(d)))
	}
	if c.Certs.Email != "" && (c.Data == "" || len(c.HTTP) == 0) {
		problems = append(problems, invalid("acme", "--acme requires --data, where certificates are stored, and --http, which the CA contacts"))
	}
	if u, err := url.Parse(c.Certs.CA); c.Certs.CA != "" && (err != nil || u.Scheme != "https" || u.Host == "" || c.Certs.Email == "") {
		problems = append(problems, invalid("acme-ca", "--acme-ca %s: use https://HOST/PATH, together with --acme", bourse.Quoted(c.Certs.CA)))
	}
	if len(c.HTTPS) > 0 && c.Certs == (CertsConfig{CA: c.Certs.CA}) {
		problems = append(problems, invalid("https", "--https requires certificates: --certificates DIR, --acme EMAIL or --self-signed"))
	}
	if c.MaxConnections < 0 {
		problems = append(problems, invalid("connections", "--connections %d: use 1 or more", c.MaxConnections))
	}
	if c.Drain < 0 || c.Drain > time.Hour {
		problems = append(problems, invalid("drain", "--drain %s: use at most 1h", c.Drain))
	}
	return problems
}

func (c *ProxyConfig) settings() any {
	s := *c
	s.ServerConfig = c.ServerConfig.settings()
	return s
}
