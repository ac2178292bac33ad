package serve

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

// BrokerConfig is the configuration of "bourse serve broker".
type BrokerConfig struct {
	ServerConfig
	Data      string          // directory for data that may be lost, such as the view; "" means none
	Name      bourse.WorkerID // the server's name in the membership; "" means a generated one
	Quotas    string          // file with the quotas of organizations and apps; "" means the defaults
	Orders    int             // maximum number of orders decided at once; 0 means a default based on the number of processors
	LostAfter time.Duration   // how long a worker may be absent before it counts as permanently lost
}

// bind binds the flags to the config.
func (c *BrokerConfig) bind(flags *pflag.FlagSet) {
	c.ServerConfig.bind(flags, bourse.RoleBroker)
	flags.StringVarP((*string)(&c.Region), "region", "r", "", "`region` of this broker, reported to clients as the nearest one")
	flags.StringVar(&c.Data, "data", "", "`directory` for the broker's copy of the view, so that it need not be fetched again after a restart (default: a temporary directory)")
	flags.StringVarP((*string)(&c.Name), "name", "n", "", "`name` in the membership (default: generated)")
	flags.StringVar(&c.Quotas, "quotas", "", "JSON `file` with the quotas of organizations and apps (default: high quotas)")
	flags.IntVar(&c.Orders, "orders", 0, "maximum `number` of orders that are decided at once; up to four times as many wait, and any others are refused with status 429 (default: 32 per processor)")
	flags.DurationVar(&c.LostAfter, "lost-after", bourse.LostAfter, "`time` that a worker may be absent before it counts as permanently lost; until then, orders that it may have filled wait for it")
}

// complete completes the config once the flags are parsed.
func (c *BrokerConfig) complete(flags *pflag.FlagSet) []error {
	problems := c.ServerConfig.completeServer(flags, bourse.RoleBroker, &c.Name)
	c.viewIn(c.Data)
	return problems
}

func (c *BrokerConfig) problems() []error {
	var configured []admission.Safeguard
	if c.Credentials.Tokens != "" {
		configured = append(configured, admission.Tokens)
	}
	problems := c.serverProblems([]admission.Safeguard{admission.TLS, admission.Tokens}, configured)
	if c.Orders < 0 {
		problems = append(problems, invalid("orders", "--orders %d: use 1 or more", c.Orders))
	}
	if c.LostAfter < 0 || c.LostAfter > bourse.MaxLostAfter {
		problems = append(problems, invalid("lost-after", "--lost-after %s: use at most %s", c.LostAfter, bourse.MaxLostAfter))
	}
	if c.Name != "" {
		problems = append(problems, flagError("name", c.Name.Validate()))
	}
	return problems
}

func (c *BrokerConfig) settings() any {
	s := *c
	s.ServerConfig = c.ServerConfig.settings()
	return s
}
