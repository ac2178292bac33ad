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

// Config says what a worker is and has. Identity fields are fixed at the
// first start: a later start with others is refused.
type Config struct {
	Dir      string                  // data directory; required
	ID       bourse.WorkerID         // required at the first start, "" afterwards means the one in the store
	Tag      func() bourse.WorkerTag // chooses a tag at the first start; default at random
	Region   bourse.Region
	Capacity Capacity
	Ports    admit.PortRange // of $PORT; zero: 20000 to 29999
	Driver   driver.Driver   // of image "host"; required
	NoHost   bool            // refuse orders for image "host"
	Version  string
	View     publish.View                         // gets machines and capacity, has cancelled orders and apps; may be nil
	Standby  watch.StandbyView                    // the machines of other workers; nil: there are none, and spares never start by themselves
	Fault    func(store.FaultStage, uint64) error // tests: see store.Config
	Forget   bool                                 // remove machines of the host that the store does not know, rather than refusing to start
	Failed   func(error)                          // called when the store has failed: ends the daemon; see store.Config
	Log      *slog.Logger                         // of this worker alone: its id is not added
	Metrics  []prometheus.Collector               // what the server counts beside, for its metrics
	Parts
	Policy
}

// Parts are what a worker can do without. What is nil is not offered: orders
// that need it are refused.
type Parts struct {
	Container driver.Driver // runs images; goes with Images
	Images    Images
	Network   Network
	Volumes   Volumes
	Pull      Puller               // runs image "pull"
	Secrets   machines.SecretsView // has the secrets of apps; nil: machines get none
	Peers     volumes.Peers        // where volumes and snapshots of other workers come from
}

// Policy says how a worker runs machines. The zero value is the default.
type Policy struct {
	NetworkMode NetworkMode
	NoNetwork   error         // why machines of images, which are to have networks, cannot: their orders are refused; nil: they can, or need none
	SharedQuota bool          // a shared vCPU has 5 ms in 80 ms, with bursts, rather than a core under contention
	PIDs        int           // limit of processes of a machine with an image; default DefaultPIDs, negative: no limit
	Rootfs      bourse.MiB    // what a machine with an image may write to its root if it does not say; 0: no limit, and nothing is taken from the ledger
	Patience    time.Duration // of spares with a worker that is not heard from; default watch.Patience
	IdleAfter   time.Duration // for which nobody uses a machine before it is stopped, where its config asks for that; default idle.After
	Awake       bool          // programs of the host have a socket through which they keep their machines awake
	Kept        bourse.MiB    // what the log and the record of a machine may take of the disk: part of what each takes, stopped ones too; 0: not counted
}

// DefaultPIDs is how many processes and threads a machine with an image may
// have: many for a program, few for a host.
const DefaultPIDs = 4096

// NetworkMode says which machines have a network of their own. The others use
// the host's.
type NetworkMode string

// The network modes. Without Parts.Network all is as with NetworkHost.
const (
	NetworkHost       NetworkMode = "host"       // none
	NetworkContainers NetworkMode = "containers" // those with an image; the default
	NetworkAll        NetworkMode = "all"        // host processes too
)

// withDefaults fills in what c leaves out, and reports CodeInvalid for what
// makes no sense.
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
		errs = append(errs, bourse.Errorf(bourse.CodeInvalid, "a driver of images and a store of images go together"))
	}
	switch c.NetworkMode {
	case NetworkHost, NetworkContainers, NetworkAll:
	default:
		errs = append(errs, bourse.Errorf(bourse.CodeInvalid, "network mode %s: use host, containers or all", bourse.Quoted(string(c.NetworkMode))))
	}
	if c.Rootfs < 0 || c.Rootfs > 0 && c.Volumes == nil {
		errs = append(errs, bourse.Errorf(bourse.CodeInvalid, "rootfs of %d MiB: the worker has nothing that limits it", c.Rootfs))
	}
	return c, errors.Join(errs...)
}
