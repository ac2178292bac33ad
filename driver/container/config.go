package container

import (
	"context"
	"log/slog"
	"time"

	containerd "github.com/containerd/containerd/v2/client"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/logs"
)

// Config is what a Driver needs. Dir, Keeper and one of Address and Client are
// required.
type Config struct {
	// Address is the path of containerd's socket.
	Address string
	// Client gives a client to use instead of one for Address, shared with
	// others. It is asked when it is needed, again after an error, and it is
	// not closed.
	Client func() (*containerd.Client, error)
	// Namespace is containerd's, where the images are; default "bourse".
	Namespace string
	// Dir is the driver's own directory, made when it is missing. What is the
	// driver's in containerd and among the cgroups is marked by its path:
	// several drivers may use one containerd, each with its directory.
	Dir string
	// Runtime is that of tasks that name none, by containerd's name or its
	// short form ("runsc"); default io.containerd.runc.v2.
	Runtime     string
	Snapshotter string   // default overlayfs
	Devices     []string // directories of CDI specifications; default /etc/cdi and /var/run/cdi
	// Runc is the command that, with more arguments, is [BecomeRunc]: it gives
	// containers their secrets. Without it, and with runtimes other than runc's, they
	// are part of a container's environment, which containerd keeps on its disk.
	Runc   []string
	Keeper Keeper
	Log    *slog.Logger // default: nothing is logged
}

// Keeper keeps the output of containers in logs while no daemon lives.
// *logs.Keeper is one.
type Keeper interface {
	// Start finds or starts the process.
	Start(ctx context.Context) error
	// Keep reads a task's output from now on; idempotent.
	Keep(ctx context.Context, s logs.Source) error
	// Done returns when the output of a task that has ended is in its log.
	// An unknown source is no error.
	Done(ctx context.Context, s logs.Source) error
	// Logs is driver.Driver's.
	Logs(ctx context.Context, machine bourse.MachineID, want driver.LogQuery, line func(driver.LogLine) error) error
	// Destroy removes a machine's log; followers of it end.
	Destroy(ctx context.Context, machine bourse.MachineID) error
}

// Defaults of Config.
const (
	DefaultNamespace   = "bourse"
	DefaultRuntime     = "io.containerd.runc.v2"
	DefaultSnapshotter = "overlayfs"
)

func (c Config) withDefaults() Config {
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	if c.Runtime == "" {
		c.Runtime = DefaultRuntime
	}
	if c.Snapshotter == "" {
		c.Snapshotter = DefaultSnapshotter
	}
	if len(c.Devices) == 0 {
		c.Devices = []string{"/etc/cdi", "/var/run/cdi"}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Bounds of waiting.
const (
	launchTimeout = time.Minute            // for a whole start
	removeTimeout = 30 * time.Second       // for undoing one, and each try to remove leftovers
	drainGrace    = 500 * time.Millisecond // for output that a child of an exec keeps open
	startGrace    = 15 * time.Second       // for a command to be started that no one waits for any more
	killGrace     = 5 * time.Second        // for processes that do not die of SIGKILL
	doneTimeout   = 10 * time.Second       // for the keeper to finish a log, before the exit is told without it
	retryFirst    = 10 * time.Millisecond  // pauses between tries grow from here
	retryMost     = time.Second            // to here
)
