package place

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
)

// warmFlags describe which task a machine stays warm for.
type warmFlags struct {
	name              string
	concurrency, port int
	protocol          string
	timeout           time.Duration
}

func (f *warmFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.name, "task", "", "stay warm for the task of this `name`: its program answers payloads on $PORT")
	flags.IntVar(&f.concurrency, "task-concurrency", 0, "so `many` payloads at once (default 1)")
	flags.IntVar(&f.port, "task-port", 0, "`port` that its program listens on (default: its $PORT)")
	flags.StringVar(&f.protocol, "task-protocol", "", "`protocol` that its program speaks: http, or frames, which cost less (default http)")
	flags.DurationVar(&f.timeout, "task-timeout", 0, "end every call after this `time` (default: as the call says)")
}

// apply sets the flags' values in a config.
func (f *warmFlags) apply(c *bourse.Config) error {
	if f.name == "" {
		if *f != (warmFlags{}) {
			return bourse.Errorf(bourse.CodeInvalid, "--task-concurrency, --task-port, --task-protocol and --task-timeout go with --task NAME")
		}
		return nil
	}
	c.Task = &bourse.TaskConfig{Name: f.name, Concurrency: f.concurrency, Port: f.port, Protocol: bourse.TaskProtocol(f.protocol), Timeout: bourse.Duration(f.timeout)}
	return c.Task.Validate()
}
