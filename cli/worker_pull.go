package cli

import (
	"net/netip"
	"time"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

// PullConfig says whether a worker is a gateway too, for those who fetch work,
// and how.
type PullConfig struct {
	On        bool
	Listen    netip.AddrPort // of /sched; port 0 means any
	TokenFile string         // of the tokens that callers must show, for everything; "" means that none are asked for
	Lost      time.Duration  // nothing heard of a job's poller for so long: it is given up
}

// DefaultPull is where a gateway listens unless told otherwise.
const DefaultPull = "127.0.0.1:4281"

const (
	defaultLost = time.Minute
	minLost     = time.Second
)

type pullFlags struct {
	config PullConfig
	listen string
}

func (f *pullFlags) bind(flags *pflag.FlagSet) {
	flags.BoolVar(&f.config.On, "pull", false, "be a gateway: take orders for image pull and hand them to whoever asks for work at --pull-listen")
	flags.StringVar(&f.listen, "pull-listen", DefaultPull, "address at which work is asked for, `IP:PORT`; port 0 means any free one")
	flags.StringVar(&f.config.TokenFile, "pull-token-file", "", "`file` with the tokens that those who ask for work, or submit it, must show: token and * on each line")
	flags.DurationVar(&f.config.Lost, "pull-lost", defaultLost, "give a job up when nothing was heard of its poller for this `time`")
}

func (f *pullFlags) read(keep func(flag string, err error)) PullConfig {
	c := f.config
	var err error
	c.Listen, err = parseListen(f.listen)
	keep("--pull-listen", err)
	return c
}

// problems gives what is wrong with the config of a gateway.
func (c *PullConfig) problems(server *ServerConfig) []error {
	if !c.On {
		return nil
	}
	var problems []error
	if c.Lost < minLost {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--pull-lost %s: use %s or more", c.Lost, minLost))
	}
	var has []admission.Safeguard
	if server.TLS.Set() {
		has = append(has, admission.TLS)
	}
	if c.TokenFile != "" {
		has = append(has, admission.Tokens)
	}
	if c.Listen.IsValid() { // one that could not be read has been told of
		problems = append(problems, admission.CheckListen(admission.Listen{
			What: "the gateway", Addr: c.Listen, Needs: []admission.Safeguard{admission.TLS, admission.Tokens}, Has: has,
		}, server.Insecure))
	}
	return problems
}
