package serve

import (
	"net/netip"
	"time"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/internal/admission"
)

// PullConfig configures whether and how a worker also acts as a gateway that other hosts
// fetch work from.
type PullConfig struct {
	Enabled   bool
	Listen    netip.AddrPort // address at which /sched is served; port 0 means any free port
	TokenFile string         // file with callers' tokens; "" means that no token is required
	Lost      time.Duration  // how long a job's poller may be silent before the job fails
}

// DefaultPull is the default address of a gateway.
const DefaultPull = "127.0.0.1:4281"

const (
	defaultLost = time.Minute
	minLost     = time.Second
)

func (c *PullConfig) bind(b binder) {
	b.BoolVar(&c.Enabled, "pull", false, "run as a gateway: accept orders with image pull and hand them to hosts that fetch work at --pull-listen")
	bindParsed(b, &c.Listen, "pull-listen", DefaultPull, "address at which hosts fetch work, `IP:PORT`; port 0 means any free port", cli.ParseListen)
	b.StringVar(&c.TokenFile, "pull-token-file", "", "`file` with the tokens that hosts must send to fetch or submit work; each line has a token and *")
	b.DurationVar(&c.Lost, "pull-lost", defaultLost, "`time` that a job's poller may be silent before the job fails")
}

// problems returns all problems with a gateway's config.
func (c *PullConfig) problems(server *ServerConfig) []error {
	if !c.Enabled {
		return nil
	}
	var problems []error
	if c.Lost < minLost {
		problems = append(problems, invalid("pull-lost", "--pull-lost %s: use %s or more", c.Lost, minLost))
	}
	var configured []admission.Safeguard
	if server.Credentials.TLS() {
		configured = append(configured, admission.TLS)
	}
	if c.TokenFile != "" {
		configured = append(configured, admission.Tokens)
	}
	if c.Listen.IsValid() { // an address that could not be parsed has already been reported
		problems = append(problems, flagErrors(admission.CheckListen(admission.Listen{
			What: "the gateway", Addr: c.Listen, Needs: []admission.Safeguard{admission.TLS, admission.Tokens}, Has: configured,
		}, server.Insecure), "pull-listen", "pull"))
	}
	return problems
}
