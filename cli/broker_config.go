package cli

import (
	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

// BrokerConfig is the whole configuration of "bourse serve broker".
type BrokerConfig struct {
	ServerConfig
	Data      string          // directory for what may be lost: the view; "" means none
	Name      bourse.WorkerID // of the server in the membership; default made up
	TokenFile string          // of the tokens that clients must show; "" means that none are asked for
}

// DefaultAPI is where a broker listens and where the verbs look for one,
// unless told otherwise.
const DefaultAPI = "127.0.0.1:4280"

type brokerFlags struct {
	server                serverFlags
	data, name, tokenFile string
}

func (f *brokerFlags) bind(flags *pflag.FlagSet) {
	f.server.bind(flags, DefaultAPI)
	flags.StringVarP(&f.server.region, "region", "r", "", "the `region` that this broker stands in, told to clients as the nearest")
	flags.StringVar(&f.data, "data", "", "`directory` for its copy of the view, so that a restart need not fetch all of it (default: a temporary one)")
	flags.StringVarP(&f.name, "name", "n", "", "`name` in the membership (default: made up)")
	flags.StringVar(&f.tokenFile, "token-file", "", "`file` with the tokens that clients must show: token, organisation and perhaps an app on each line, or token and * for everything")
}

// read turns the flags into a config. gossips tells whether --gossip was given:
// then a broker on NATS is also in the membership of those that are not.
func (f *brokerFlags) read(gossips bool) BrokerConfig {
	c := BrokerConfig{ServerConfig: f.server.read(), Data: f.data, Name: bourse.WorkerID(f.name), TokenFile: f.tokenFile}
	c.viewIn(c.Data)
	c.NATS.Both = c.NATS.Set() && (gossips || len(c.Join) > 0)
	return c
}

// Validate reports every problem of the config at once, as CodeInvalid.
func (c *BrokerConfig) Validate() error {
	var has []admission.Safeguard
	if c.TokenFile != "" {
		has = append(has, admission.Tokens)
	}
	problems := c.problems([]admission.Safeguard{admission.TLS, admission.Tokens}, has)
	if c.Name != "" {
		problems = append(problems, named("--name", c.Name.Validate()))
	}
	return joined(problems)
}
