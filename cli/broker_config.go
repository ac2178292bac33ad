package cli

import (
	"time"

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
	Quotas    string          // file of the quotas of organisations and apps; "" means the defaults
	Orders    int             // that are decided at once; 0 means as many as the processors are good for
	LostAfter time.Duration   // how long a worker may be absent before it counts as lost for good
}

// DefaultAPI is where a broker listens and where the verbs look for one,
// unless told otherwise.
const DefaultAPI = "127.0.0.1:4280"

type brokerFlags struct {
	server                serverFlags
	data, name, tokenFile string
	quotas                string
	orders                int
	lostAfter             time.Duration
}

func (f *brokerFlags) bind(flags *pflag.FlagSet) {
	f.server.bind(flags, DefaultAPI)
	flags.StringVarP(&f.server.region, "region", "r", "", "the `region` that this broker stands in, told to clients as the nearest")
	flags.StringVar(&f.data, "data", "", "`directory` for its copy of the view, so that a restart need not fetch all of it (default: a temporary one)")
	flags.StringVarP(&f.name, "name", "n", "", "`name` in the membership (default: made up)")
	flags.StringVar(&f.quotas, "quotas", "", "`file` with quotas of organisations and apps, in JSON (default: high ones)")
	flags.IntVar(&f.orders, "orders", 0, "`number` of orders that are decided at once; four times as many wait, and more are refused with status 429 (default: 32 for each processor)")
	flags.DurationVar(&f.lostAfter, "lost-after", bourse.LostAfter, "`time` that a worker may be absent before it counts as lost for good: until then an order that it may have filled waits for it")
	flags.StringVar(&f.tokenFile, "token-file", "", "`file` with the tokens that clients must show: token, organisation and perhaps an app on each line, or token and * for everything")
}

// read turns the flags into a config. gossips tells whether --gossip was given:
// then a broker on NATS is also in the membership of those that are not.
func (f *brokerFlags) read(gossips bool) BrokerConfig {
	c := BrokerConfig{ServerConfig: f.server.read(), Data: f.data, Name: bourse.WorkerID(f.name), TokenFile: f.tokenFile, Orders: f.orders, Quotas: f.quotas, LostAfter: f.lostAfter}
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
	if c.Orders < 0 {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--orders %d: use 1 or more", c.Orders))
	}
	if c.LostAfter < 0 || c.LostAfter > bourse.MaxLostAfter {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--lost-after %s: use at most %s", c.LostAfter, bourse.MaxLostAfter))
	}
	if c.Name != "" {
		problems = append(problems, named("--name", c.Name.Validate()))
	}
	return joined(problems)
}
