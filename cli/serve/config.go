package serve

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/internal/admission"
)

// ServerConfig is the part of the configuration that all kinds of servers share:
// addresses, membership, credentials and readiness.
type ServerConfig struct {
	File           string           // configuration file, whose settings the command line overrides; "" means none
	Address        netip.Addr       // the host's address, from which Listen and Gossip get their defaults; may be the zero Addr
	Credentials    Credentials      // the files in --credentials
	Listen         netip.AddrPort   // API address; port 0 means any free port
	Gossip         netip.AddrPort   // membership address; port 0 means any free port
	Join           []string         // gossip addresses of other servers, host:port
	Region         bourse.Region    // may be "" for a broker
	NATS           NATSConfig       //
	Cluster        string           // name of the cluster; servers of other clusters are ignored
	View           string           // path of the view's file; "" means a temporary file
	Names          []string         // names that clients use for the server, in addition to IP addresses, localhost and those in its certificate
	Insecure       bool             // whether the server may listen beyond loopback without credentials
	ReadyFile      string           // file that is written once the server is ready and removed when it stops; "" means none
	Log            LogConfig        //
	LifeLine       bool             // whether to stop when standard input is closed, because the parent process has then exited
	fromParent     bool             // whether to read the text of File from configFD; the parent process has already checked it
	rejected       map[string]error // errors of flags that could not be parsed, by flag
	file           *File            // the settings in File; nil if there are none, or if they could not be read
	setByFlag      map[string]bool  // flags that are set on the command line
	configuredJoin int              // number of configured addresses in Join; the rest are those of this host's other servers
}

// DefaultCluster is the default name of a cluster.
const DefaultCluster = "bourse"

// viewFile is the name of the view's file in a server's data directory.
const viewFile = "view.db"

// viewIn sets the path of the view to a file in the data directory. If data is "", it does
// nothing.
func (c *ServerConfig) viewIn(data string) {
	if data != "" {
		c.View = filepath.Join(data, viewFile)
	}
}

// The default ports of a server for which --address is set.
var (
	apiPorts    = map[bourse.Role]uint16{bourse.RoleBroker: 4280, bourse.RoleWorker: 4281, bourse.RoleProxy: 4282}
	gossipPorts = map[bourse.Role]uint16{bourse.RoleWorker: 7946, bourse.RoleBroker: 7947, bourse.RoleProxy: 7948}
)

// Ports returns a role's default ports for the API and for the membership.
func Ports(role bourse.Role) (api, gossip uint16) { return apiPorts[role], gossipPorts[role] }

func (c *ServerConfig) shared() *ServerConfig { return c }

// settings returns a copy that contains only the settings, for comparison with other
// configs.
func (c *ServerConfig) settings() ServerConfig {
	s := *c
	s.Join, s.file, s.setByFlag = c.Join[:c.configuredJoin], nil, nil
	return s
}

// completeServer completes the config of a server once the flags are parsed. It takes missing
// settings from the configuration file, from --address, and from the credentials directory.
// It returns the problems with the configuration file.
func (c *ServerConfig) completeServer(flags *pflag.FlagSet, role bourse.Role, name *bourse.WorkerID) []error {
	c.setByFlag = map[string]bool{}
	flags.Visit(func(flag *pflag.Flag) { c.setByFlag[flag.Name] = true })
	if c.File != "" && c.file == nil {
		var err error
		if c.file, err = c.readFile(); err != nil {
			return []error{err}
		}
	}
	var problems []error
	if c.file != nil {
		problems = c.file.apply(flags, c, role)
	}
	c.configuredJoin = len(c.Join)
	onGossip := c.Gossip.IsValid()
	c.listenByDefault(role)
	if c.file != nil && c.Address.IsValid() { // this server joins the host's other servers
		for _, other := range c.file.Roles() {
			if other != role {
				c.Join = append(c.Join, netip.AddrPortFrom(c.Address, gossipPorts[other]).String())
			}
		}
	}
	// A broker or proxy on NATS also joins the group of servers that are not on NATS if
	// --address, --gossip or --join is set.
	c.NATS.Both = role != bourse.RoleWorker && c.NATS.Set() && (c.Address.IsValid() || onGossip || len(c.Join) > 0)
	c.Credentials.find(*name, role)
	return problems
}

// listenByDefault sets Listen and Gossip to their defaults, unless they are set already.
func (c *ServerConfig) listenByDefault(role bourse.Role) {
	api, gossip := netip.MustParseAddrPort(loopbackAPI(role)), netip.MustParseAddrPort(loopbackGossip)
	if c.Address.IsValid() {
		api, gossip = netip.AddrPortFrom(c.Address, apiPorts[role]), netip.AddrPortFrom(c.Address, gossipPorts[role])
	}
	if !c.Listen.IsValid() {
		c.Listen = api
	}
	if !c.Gossip.IsValid() {
		c.Gossip = gossip
	}
}

// loopbackGossip is the membership address of a server without --address.
const loopbackGossip = "127.0.0.1:0"

// loopbackAPI returns the default API address of a server without --address. A broker listens at cli.DefaultAPI,
// where commands look for it. Other servers use any free port on 127.0.0.1.
func loopbackAPI(role bourse.Role) string {
	if role == bourse.RoleBroker {
		return cli.DefaultAPI
	}
	return "127.0.0.1:0"
}

// readFile reads the configuration file.
func (c *ServerConfig) readFile() (*File, error) {
	if !c.fromParent {
		return ReadFile(c.File)
	}
	pipe := os.NewFile(configFD, c.File)
	defer pipe.Close() // machines must not inherit it
	text, err := io.ReadAll(pipe)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "read the configuration: %w", err)
	}
	return parseFile(c.File, text)
}

// clusterName matches valid cluster names.
var clusterName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$`)

// LogConfig configures a server's log, which is written to standard error.
type LogConfig struct {
	Level  slog.Level
	Format string // text or json
}

// Logger returns the server's logger.
func (l LogConfig) Logger(w *os.File) *slog.Logger {
	o := &slog.HandlerOptions{Level: l.Level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// bind binds the flags that all servers share.
func (c *ServerConfig) bind(flags *pflag.FlagSet, role bourse.Role) binder {
	api, gossip := Ports(role)
	b := binder{flags, map[string]error{}}
	c.rejected = b.rejected
	flags.StringVar(&c.File, "config", "", "`file` with the settings that are not given as flags, such as "+DefaultFile)
	bindParsed(b, &c.Address, "address", "", "`IP` address at which the cluster's other servers reach this host: the default of --listen and --gossip, with the usual ports of this server's role", netip.ParseAddr)
	flags.StringVar(&c.Credentials.Dir, "credentials", "", "`directory` with the files that bourse init, bourse join or bourse credentials have created: ca.pem, NAME.pem, gossip.key and, for brokers, tokens, secrets.key and issuer.pem")
	bindParsed(b, &c.Listen, "listen", "", fmt.Sprintf("API address, `IP:PORT`; port 0 means any free port (default: port %d of --address, otherwise %s)", api, loopbackAPI(role)), cli.ParseListen)
	bindParsed(b, &c.Gossip, "gossip", "", fmt.Sprintf("membership address, `IP:PORT`, for TCP and UDP (default: port %d of --address, otherwise %s)", gossip, loopbackGossip), cli.ParseListen)
	flags.StringVar(&c.Cluster, "cluster", DefaultCluster, "`name` of the cluster; servers of other clusters are ignored")
	flags.StringSliceVar(&c.Join, "join", nil, "gossip addresses of other servers, `HOST:PORT`, separated by commas")
	c.NATS.bind(flags)
	flags.StringSliceVar(&c.Names, "server-name", nil, "DNS `names` that clients use for this server, in addition to those in its certificate, separated by commas; requests for other names are answered with status 421")
	flags.BoolVar(&c.Insecure, "insecure", false, "allow listening beyond loopback without credentials, for test networks only")
	flags.StringVar(&c.ReadyFile, "ready-file", "", "`file` to write {id, role, region, api, gossip, pid} to as JSON once the server is ready")
	bindParsed(b, &c.Log.Level, "log-level", "info", "log `level`: debug, info, warn or error", parseLevel)
	flags.StringVar(&c.Log.Format, "log-format", "text", "log `format`: text or json")
	flags.BoolVar(&c.fromParent, "config-from-parent", false, "read the text of --config from the parent process")
	_ = flags.MarkHidden("config-from-parent") // fails for an unknown flag only
	bindLifeLine(flags, &c.LifeLine)
	return b
}

func parseLevel(s string) (level slog.Level, err error) {
	if level.UnmarshalText([]byte(s)) != nil {
		return level, bourse.Errorf(bourse.CodeInvalid, "%s: use debug, info, warn or error", bourse.Quoted(s))
	}
	return level, nil
}

// serverProblems returns all problems with the config. needed lists the safeguards that the API must have if other
// hosts can connect to it. configured lists the safeguards that it has, except TLS and the gossip key.
func (c *ServerConfig) serverProblems(needed, configured []admission.Safeguard) []error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(c.rejected)) {
		problems = append(problems, flagErrors(c.rejected[name], name))
	}
	for _, j := range c.Join {
		if _, _, err := net.SplitHostPort(j); err != nil {
			problems = append(problems, invalid("join", "--join %s: use HOST:PORT", bourse.Quoted(j)))
		}
	}
	if !clusterName.MatchString(c.Cluster) {
		problems = append(problems, invalid("cluster", "--cluster %s: use 1 to 64 letters, digits, dots, dashes and underscores, with a letter or digit at both ends", bourse.Quoted(c.Cluster)))
	}
	if c.Region != "" {
		problems = append(problems, flagError("region", c.Region.Validate()))
	}
	for _, name := range c.Names {
		problems = append(problems, flagError("server-name", admission.CheckName(name)))
	}
	for _, err := range c.Credentials.problems {
		problems = append(problems, flagErrors(err, "credentials"))
	}
	if c.Log.Format != "text" && c.Log.Format != "json" {
		problems = append(problems, invalid("log-format", "--log-format %s: use text or json", bourse.Quoted(c.Log.Format)))
	}
	if c.Credentials.TLS() {
		configured = append(configured, admission.TLS)
	}
	if c.Credentials.GossipKey != "" {
		configured = append(configured, admission.GossipKey)
	}
	problems = append(problems, c.NATS.problems(c.Insecure, c.Credentials.TLS())...)
	for _, l := range []struct {
		flag string
		admission.Listen
	}{
		{"listen", admission.Listen{What: "the API", Addr: c.Listen, Needs: needed, Has: configured}},
		{"gossip", admission.Listen{What: "the membership", Addr: c.Gossip, Needs: []admission.Safeguard{admission.GossipKey}, Has: configured}},
	} {
		if l.Addr.IsValid() { // an address that could not be parsed has already been reported
			problems = append(problems, flagErrors(admission.CheckListen(l.Listen, c.Insecure), l.flag, "address"))
		}
	}
	return problems
}
