package process

import (
	"log/slog"
	"time"

	"github.com/bourse-dev/bourse/driver/logs"
)

// LimitMode selects whether tasks' limits are enforced.
type LimitMode string

// The modes of limits.
const (
	LimitsAuto LimitMode = "auto" // as far as the host supports them; the default
	LimitsOff  LimitMode = "off"  // never
)

// Config configures a Driver. Dir and Supervisor are required.
type Config struct {
	// Dir is the driver's directory, created if missing. A task that runs as another user in the machine's own
	// directory requires that this user can traverse all parent directories.
	Dir string
	// Supervisor is the command that runs Supervise, for example {"/proc/self/exe", "supervisor"}. Dir is appended as
	// its last argument.
	Supervisor []string
	Log        *slog.Logger // default: discards
	Limits     LimitMode    // default LimitsAuto
	LogBytes   int64        // a machine's log file is rotated at this size in bytes; default 10 MiB
	LogFiles   int          // maximum number of log files per machine; default 3
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Limits == "" {
		c.Limits = LimitsAuto
	}
	c.LogBytes, c.LogFiles = logs.Defaults(c.LogBytes, c.LogFiles)
	return c
}

// SupervisorConfig configures Supervise.
type SupervisorConfig struct {
	Dir string       // same as Config.Dir
	Log *slog.Logger // default: discards
	// Grace is how long a supervisor without tasks waits for a daemon before it exits; default 2 s, and 10 s for the
	// first daemon.
	Grace time.Duration
}

// Time limits of the supervisor.
const (
	drainGrace   = Grace                  // for output that an escaped process keeps open
	killGrace    = 5 * time.Second        // for processes that SIGKILL does not end (because of a dead disk)
	shutdownTerm = time.Second            // between SIGTERM and SIGKILL during a shutdown
	hangupGrace  = 200 * time.Millisecond // between SIGHUP and SIGKILL when a terminal's user has left
	firstGrace   = 10 * time.Second       // until the daemon that started the supervisor connects
	idleGrace    = 2 * time.Second
)
