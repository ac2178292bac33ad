package process

import (
	"log/slog"
	"time"

	"github.com/bourse-dev/bourse/driver/logs"
)

// LimitMode reports whether tasks' limits are enforced.
type LimitMode string

// The modes of limits.
const (
	LimitsAuto LimitMode = "auto" // by what the host has; the default
	LimitsOff  LimitMode = "off"  // not at all
)

// Config is what a Driver needs. Dir and Supervisor are required.
type Config struct {
	// Dir is the driver's own directory, made when it is missing. A task of
	// another user whose directory is the machine's own can only run when
	// that user may pass through every directory above.
	Dir string
	// Supervisor is the command that runs Supervise; Dir is added to it as
	// its last argument: {"/proc/self/exe", "supervisor"}.
	Supervisor []string
	Log        *slog.Logger // default: nothing is logged
	Limits     LimitMode    // default LimitsAuto
	LogBytes   int64        // a machine's log file is rotated at this size; default 10 MiB
	LogFiles   int          // so many are kept of a machine; default 3
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

// SupervisorConfig is what Supervise needs.
type SupervisorConfig struct {
	Dir string       // as Config.Dir
	Log *slog.Logger // default: nothing is logged
	// Grace is how long a supervisor that holds no task waits for a daemon
	// before it ends; default 2 s, and 10 s for the first.
	Grace time.Duration
}

// Bounds of waiting, of the supervisor.
const (
	drainGrace   = Grace                  // for output that an escaped process keeps open
	killGrace    = 5 * time.Second        // for processes that do not die of SIGKILL (a dead disk)
	shutdownTerm = time.Second            // between SIGTERM and SIGKILL in a shutdown
	hangupGrace  = 200 * time.Millisecond // between SIGHUP and SIGKILL when a terminal's user has left
	firstGrace   = 10 * time.Second       // for the daemon that started us to connect
	idleGrace    = 2 * time.Second
)
