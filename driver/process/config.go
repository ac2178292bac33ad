package process

import (
	"log/slog"
	"time"

	"github.com/bourse-dev/bourse/driver/logs"
)

// LimitMode specifies whether the driver enforces tasks' limits.
type LimitMode string

// The possible values of LimitMode.
const (
	LimitsAuto LimitMode = "auto" // enforce the limits that the host supports; the default
	LimitsOff  LimitMode = "off"  // do not enforce limits
)

// Config configures a Driver. Dir and Supervisor are required.
type Config struct {
	// Dir is the driver's directory, created if missing. If a task runs as another user in the machine's own directory,
	// that user must be able to traverse all parent directories of the machine's directory.
	Dir string
	// Supervisor is the command that runs Supervise, for example {"/proc/self/exe", "supervisor"}. Dir is appended as
	// its last argument.
	Supervisor []string
	Log        *slog.Logger // default: discards all records
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
	Dir string       // the same as Config.Dir
	Log *slog.Logger // default: discards all records
	// Grace is how long a supervisor without tasks waits for a daemon to connect before it exits; default 2 s. A newly
	// started supervisor waits at least 10 s.
	Grace time.Duration
}

// Timeouts of the supervisor.
const (
	drainGrace   = Grace            // how long to read output that another process holds open
	killGrace    = 5 * time.Second  // how long to wait for killed processes, which may hang in the kernel, for example because of a failed disk
	execGrace    = time.Second      // how long to wait for the environment of a process that is starting a program
	shutdownTerm = time.Second      // time between SIGTERM and SIGKILL during a shutdown
	hangupGrace  = 2 * time.Second  // time between SIGHUP and SIGKILL after a terminal's user has disconnected
	firstGrace   = 10 * time.Second // how long a new supervisor waits for the daemon that started it to connect
	idleGrace    = 2 * time.Second
)
