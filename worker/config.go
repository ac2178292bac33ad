package worker

import (
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/machines"
	"github.com/bourse-dev/bourse/worker/publish"
	"github.com/bourse-dev/bourse/worker/volumes"
	"github.com/bourse-dev/bourse/worker/watch"
)

// Config configures a worker. The worker's identity is fixed at its first start; later starts with a different identity
// fail.
type Config struct {
	Dir      string                  // data directory; required
	ID       bourse.WorkerID         // required at the first start; later, "" means the id in the store
	Tag      func() bourse.WorkerTag // returns the tag to use at the first start; default: a random tag
	Region   bourse.Region
	Capacity Capacity
	Ports    admit.PortRange // range of ports for $PORT; default 20000 to 29999
	Driver   driver.Driver   // runs image "host"; required
	NoHost   bool            // refuse all orders for image "host"
	Version  string
	View     publish.View                         // may be nil
	Standby  watch.StandbyView                    // view of other workers' machines; if nil, standbys never start automatically
	Fault    func(store.FaultStage, uint64) error // injects faults for tests; see store.Config
	Forget   bool                                 // remove machines and volumes that are on the host but have no record, instead of refusing to start
	Failed   func(error)                          // called when the store has failed, so that the daemon can exit; see store.Config
	Log      *slog.Logger                         // logger for this worker only; the worker does not add its id to log lines
	Metrics  []prometheus.Collector               // additional collectors for the worker's metrics
	Parts
	Policy
}

// Parts contains a worker's optional parts. Orders that need a missing part are
// refused.
type Parts struct {
	Container driver.Driver // runs images; requires Images
	Images    Images
	Network   Network
	Mesh      Mesh // connects Network with other workers; may be nil
	Volumes   Volumes
	Pull      Puller               // runs image "pull"
	Secrets   machines.SecretsView // provides apps' secrets; if nil, machines get none
	Peers     volumes.Peers        // reads other workers' volumes and snapshots
}

// Policy configures how a worker runs machines. The zero value is the default.
type Policy struct {
	NetworkMode   NetworkMode
	NoNetwork     error         // why machines with images cannot have private networks; nil if they can
	SharedQuota   bool          // cap each shared vCPU at 5 ms per 80 ms, with bursts; otherwise, shared vCPUs compete for cores
	PIDs          int           // limit on processes in a machine with an image; default DefaultPIDs, negative for no limit
	Rootfs        bourse.MiB    // default size of an image's root file system; 0 for no limit, in which case the ledger does not count it
	FailoverDelay time.Duration // how long a worker may be unreachable before standbys replace its machines; default watch.DefaultFailoverDelay
	IdleAfter     time.Duration // idle time after which machines with autostop stop; default watch.IdleAfter
	KeepAlive     bool          // whether programs of the image "host" get a socket to keep their machines awake
	MachineDisk   bourse.MiB    // disk reserved for each machine's log and record, even while the machine is stopped; 0 for none
}

// DefaultPIDs is the default limit on processes and threads in a machine with an image. It is more than an ordinary
// program needs, but low enough to protect the host.
const DefaultPIDs = 4096

// NetworkMode defines which machines have private networks. All other machines use the
// host's network.
type NetworkMode string

// The network modes. If Parts.Network is not set, the mode is NetworkHost.
const (
	NetworkHost       NetworkMode = "host"       // no machine has a private network
	NetworkContainers NetworkMode = "containers" // machines with an image have one; the default
	NetworkAll        NetworkMode = "all"        // host processes also have one
)

// withDefaults returns c with defaults filled in. It returns CodeInvalid if the
// configuration is invalid.
func (c Config) withDefaults() (Config, error) {
	if c.Ports == (admit.PortRange{}) {
		c.Ports = admit.PortRange{First: 20000, Last: 29999}
	}
	if c.PIDs == 0 {
		c.PIDs = DefaultPIDs
	}
	if c.NetworkMode == "" {
		c.NetworkMode = NetworkContainers
	}
	errs := []error{c.Capacity.Validate(), c.Ports.Validate()}
	if (c.Container == nil) != (c.Images == nil) {
		errs = append(errs, bourse.Errorf(bourse.CodeInvalid, "the container driver and the image store must be set together"))
	}
	switch c.NetworkMode {
	case NetworkHost, NetworkContainers, NetworkAll:
	default:
		errs = append(errs, bourse.Errorf(bourse.CodeInvalid, "network mode %s: use host, containers or all", bourse.Quoted(string(c.NetworkMode))))
	}
	if c.Rootfs < 0 || c.Rootfs > 0 && c.Volumes == nil {
		errs = append(errs, bourse.Errorf(bourse.CodeInvalid, "rootfs of %d MiB: the worker cannot limit root file systems", c.Rootfs))
	}
	return c, errors.Join(errs...)
}
