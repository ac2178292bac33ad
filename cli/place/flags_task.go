package place

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
)

// warmFlags describe the task for which a machine is warm.
type warmFlags struct {
	name              string
	concurrency, port int
	protocol          string
	timeout           time.Duration
}

func (f *warmFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.name, "task", "", "`name` of a task for which the machine stays warm; its program answers payloads on $PORT")
	flags.IntVar(&f.concurrency, "task-concurrency", 0, "maximum `number` of concurrent payloads (default: 1)")
	flags.IntVar(&f.port, "task-port", 0, "`port` on which the program listens (default: $PORT)")
	flags.StringVar(&f.protocol, "task-protocol", "", "`protocol` of the program: http, or the more efficient frames (default: http)")
	flags.DurationVar(&f.timeout, "task-timeout", 0, "`time` after which each call is terminated (default: set by the call)")
}

// apply sets the fields of a config from the flags.
func (f *warmFlags) apply(c *bourse.Config) error {
	if f.name == "" {
		if *f != (warmFlags{}) {
			return bourse.Errorf(bourse.CodeInvalid, "--task-concurrency, --task-port, --task-protocol and --task-timeout require --task NAME")
		}
		return nil
	}
	c.Task = &bourse.TaskConfig{Name: f.name, Concurrency: f.concurrency, Port: f.port, Protocol: bourse.TaskProtocol(f.protocol), Timeout: bourse.Duration(f.timeout)}
	return c.Task.Validate()
}
