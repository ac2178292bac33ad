package serve

import (
	"net/netip"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/internal/admission"
)

// PullConfig is whether a worker is a gateway too, for hosts that fetch work,
// and how.
type PullConfig struct {
	On        bool
	Listen    netip.AddrPort // of /sched; port 0 means any
	TokenFile string         // of the tokens that callers must show, for everything; "" means that none are asked for
	Lost      time.Duration  // a job whose poller is silent for so long is given up
}

// DefaultPull is where a gateway listens by default.
const DefaultPull = "127.0.0.1:4281"

const (
	defaultLost = time.Minute
	minLost     = time.Second
)

func (c *PullConfig) bind(b binder) {
	b.BoolVar(&c.On, "pull", false, "be a gateway: take orders for image pull and hand them to hosts that ask for work at --pull-listen")
	reads(b, &c.Listen, "pull-listen", DefaultPull, "address at which work is asked for, `IP:PORT`; port 0 means any free one", cli.ParseListen)
	b.StringVar(&c.TokenFile, "pull-token-file", "", "`file` with the tokens that those who ask for work, or submit it, must show: token and * on each line")
	b.DurationVar(&c.Lost, "pull-lost", defaultLost, "give a job up when its poller was silent for this `time`")
}

// problems returns what is wrong with the config of a gateway.
func (c *PullConfig) problems(server *ServerConfig) []error {
	if !c.On {
		return nil
	}
	var problems []error
	if c.Lost < minLost {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--pull-lost %s: use %s or more", c.Lost, minLost))
	}
	var has []admission.Safeguard
	if server.Credentials.TLS() {
		has = append(has, admission.TLS)
	}
	if c.TokenFile != "" {
		has = append(has, admission.Tokens)
	}
	if c.Listen.IsValid() { // one that could not be read is a problem already
		problems = append(problems, admission.CheckListen(admission.Listen{
			What: "the gateway", Addr: c.Listen, Needs: []admission.Safeguard{admission.TLS, admission.Tokens}, Has: has,
		}, server.Insecure))
	}
	return problems
}
