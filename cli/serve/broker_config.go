package serve

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/internal/admission"
)

// BrokerConfig is the whole configuration of "bourse serve broker".
type BrokerConfig struct {
	ServerConfig
	Data      string          // directory for what may be lost: the view; "" means none
	Name      bourse.WorkerID // of the server in the membership; default made up
	Quotas    string          // file of the quotas of organizations and apps; "" means the defaults
	Orders    int             // that are decided at once; 0 means as many as the processors are good for
	LostAfter time.Duration   // how long a worker may be absent before it counts as lost for good
}

// bind binds the flags to the config.
func (c *BrokerConfig) bind(flags *pflag.FlagSet) {
	c.ServerConfig.bind(flags, cli.DefaultAPI)
	flags.StringVarP((*string)(&c.Region), "region", "r", "", "the `region` that this broker is in, reported to clients as the nearest")
	flags.StringVar(&c.Data, "data", "", "`directory` for its copy of the view, so that a restart need not fetch all of it (default: a temporary one)")
	flags.StringVarP((*string)(&c.Name), "name", "n", "", "`name` in the membership (default: made up)")
	flags.StringVar(&c.Quotas, "quotas", "", "`file` with quotas of organizations and apps, in JSON (default: high ones)")
	flags.IntVar(&c.Orders, "orders", 0, "`number` of orders that are decided at once; four times as many wait, and more are refused with status 429 (default: 32 for each processor)")
	flags.DurationVar(&c.LostAfter, "lost-after", bourse.LostAfter, "`time` that a worker may be absent before it counts as lost for good: until then an order that it may have filled waits for it")
}

// settle completes the config once the flags are parsed. A broker on NATS for which --gossip
// or --join was given is also in the membership of servers that are not on NATS.
func (c *BrokerConfig) settle(flags *pflag.FlagSet) error {
	if err := c.ServerConfig.settle(flags, bourse.RoleBroker, &c.Name); err != nil {
		return err
	}
	c.viewIn(c.Data)
	c.NATS.Both = c.NATS.Set() && (flags.Changed("gossip") || len(c.Join) > 0)
	return nil
}

// Validate reports every problem of the config at once, as CodeInvalid.
func (c *BrokerConfig) Validate() error {
	var has []admission.Safeguard
	if c.Credentials.Tokens != "" {
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
		problems = append(problems, cli.FlagError("--name", c.Name.Validate()))
	}
	return cli.JoinProblems(problems)
}
