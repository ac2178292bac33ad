package container

import (
	"context"
	"log/slog"
	"time"

	containerd "github.com/containerd/containerd/v2/client"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/logs"
	"github.com/bourse-dev/bourse/driver/vm"
)

// Config configures a Driver. Dir, Keeper and one of Address and Client are required.
type Config struct {
	// Address is the path of containerd's socket.
	Address string
	// Client, if set, returns a shared client, which the driver uses instead of connecting to Address. The driver calls
	// Client until a call succeeds, keeps the returned client, and does not close it.
	Client func() (*containerd.Client, error)
	// Namespace is the containerd namespace that contains the images; default "bourse".
	Namespace string
	// Dir is the driver's directory, created if missing. The driver marks its cgroups and its objects in containerd
	// with a hash of the directory's path. Several drivers may share one containerd if each has its own directory.
	Dir string
	// Runtime is the name of the default runtime: containerd's name or its short form, such as "runsc". The default is
	// io.containerd.runc.v2.
	Runtime     string
	Snapshotter string   // default overlayfs
	Devices     []string // directories of CDI specifications; default /etc/cdi and /var/run/cdi
	// Runc is the command line of a program that passes secrets to containers by calling
	// [ExecRunc]. The driver appends the arguments for ExecRunc. If Runc is empty or the runtime is not
	// runc, secrets become part of the container's environment, which containerd stores on disk.
	Runc   []string
	VM     *vm.Host // runs tasks with the runtime "vm" in virtual machines; nil if the host does not support them
	Keeper Keeper
	Log    *slog.Logger // default: discards all records
}

// Keeper stores the output of containers in logs, even while no daemon is running. *logs.Keeper implements it.
type Keeper interface {
	// Start connects to a running keeper process, if there is one.
	Start(ctx context.Context) error
	// Keep starts reading a task's output. It is idempotent.
	Keep(ctx context.Context, s logs.Source) error
	// Done waits until all of an ended task's output has been logged. It does nothing if the source is unknown.
	Done(ctx context.Context, s logs.Source) error
	// Logs implements driver.Driver's Logs.
	Logs(ctx context.Context, machine bourse.MachineID, want driver.LogQuery, line func(driver.LogLine) error) error
	// Destroy removes a machine's log. Calls to Logs that follow this log then return.
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

// Time limits and retry intervals.
const (
	launchTimeout = time.Minute            // limit for starting a container
	bootTimeout   = 2 * time.Minute        // limit for a virtual machine's boot
	removeTimeout = 30 * time.Second       // limit for undoing a start or for one attempt to remove leftovers
	drainGrace    = 500 * time.Millisecond // limit for reading output that an exec's child processes hold open
	startGrace    = 15 * time.Second       // limit for starting an exec's command once its caller's context is done
	killGrace     = 5 * time.Second        // limit for killed processes to exit
	doneTimeout   = 10 * time.Second       // limit for the keeper to finish a log before an exit is reported
	minRetryDelay = 10 * time.Millisecond  // initial pause between attempts
	maxRetryDelay = time.Second            // maximum pause
)
