package worker

import (
	"context"
	"maps"
	"net"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/machines"
	"github.com/bourse-dev/bourse/worker/tasks"
	"github.com/bourse-dev/bourse/worker/volumes"
	"github.com/bourse-dev/bourse/worker/watch"
)

// newMachines returns the worker's machines.
func (w *Worker) newMachines() *machines.Machines {
	cfg := &w.cfg
	c := machines.Config{
		State: w.state, Admit: w.host, Drivers: map[bourse.ImageKind]driver.Driver{bourse.HostImage: cfg.Driver},
		Volumes: w.volumes, Secrets: &machines.SecretReader{View: cfg.Secrets}, Network: cfg.Network, Scratch: cfg.Volumes, Images: cfg.Images,
		Policy: machines.Policy{SharedQuota: cfg.SharedQuota, PIDs: cfg.PIDs}, KeepAliveEnv: w.keepAliveEnv, Forget: cfg.Forget,
	}
	if cfg.Container != nil {
		c.Drivers[bourse.RegistryImage] = cfg.Container
	}
	if cfg.Pull != nil {
		c.Drivers[bourse.PollerImage] = cfg.Pull
	}
	ms := machines.New(c)
	if cfg.Images != nil {
		cfg.Images.SetInUse(ms.ImageInUse)
	}
	return ms
}

// newTasks returns the worker's tasks.
func (w *Worker) newTasks() *tasks.Tasks {
	return tasks.New(w.state, w.host, w.machines, w.cfg.Network, func(ctx context.Context, id bourse.OrderID) error {
		_, err := w.cancel(ctx, id)
		return err
	})
}

// startForUse starts a machine for a client that wants to use it.
func (w *Worker) startForUse(ctx context.Context, id bourse.MachineID) error {
	_, err := w.machines.Start(ctx, id, fabric.MachineAction{})
	return err
}

// startScheduled starts a machine that is due according to its schedule.
func (w *Worker) startScheduled(ctx context.Context, id bourse.MachineID, check func(*bourse.Machine) error, write func(*bourse.Machine) []bourse.Event) error {
	ctx, cancel := context.WithTimeout(ctx, scheduledTimeout)
	defer cancel()
	_, err := w.machines.StartIf(ctx, id, check, write)
	if bourse.CodeOf(err) == bourse.CodeTimeout { // the start is recorded and continues in the background
		return nil
	}
	return err
}

// scheduledTimeout limits how long the start of a scheduled machine may delay other machines that are due.
const scheduledTimeout = 5 * time.Second

// keepAliveEnv starts listening on the socket through which a program keeps its machine awake. It returns the
// environment variable that contains the socket's path.
func (w *Worker) keepAliveEnv(m *bourse.Machine) []string {
	if w.awake == nil || len(m.Config.Services) == 0 || m.Config.ImageKind() != bourse.HostImage {
		return nil
	}
	path := w.awake.Socket(m.ID)
	if path == "" {
		return nil
	}
	if err := w.awake.Listen(m.ID); err != nil {
		w.log.Warn("listen on machine socket failed, program cannot keep its machine awake", "machine", m.ID, "err", err)
	}
	return []string{watch.EnvKeepAlive + "=" + path}
}

// Images manages the host's images.
type Images interface {
	machines.ImageHost
	// List returns all images, including those being pulled.
	List(ctx context.Context) ([]bourse.Image, error)
	// Prune removes and returns all images that are not in use.
	Prune(ctx context.Context) ([]bourse.Image, error)
	// SetInUse sets the function that reports whether an image must not be removed. It
	// must be called before the image store runs.
	SetInUse(inUse func(digest string) bool)
	// Changed returns a channel of capacity one that contains a token if the result of List may have changed. Every
	// call returns the same channel.
	Changed() <-chan struct{}
}

// Network manages machines' private networks.
type Network interface {
	machines.Network
	// Dial connects to a TCP port of a machine.
	Dial(ctx context.Context, machine bourse.MachineID, port uint16) (net.Conn, error)
	// Labels returns the network's labels, such as "network": "private".
	Labels() map[string]string
}

// Volumes manages volumes and scratch space on the host.
type Volumes interface {
	volumes.Host
	machines.Scratch
}

// Puller is a driver for machines that pollers run. Its Start method returns once a
// poller has claimed the task. If no poller is asking for work, Start returns
// CodeInsufficient.
type Puller interface {
	driver.Driver
	// Room returns a refusal if a task with these limits would be refused now, and nil otherwise. It does not block.
	Room(limits driver.Limits) *bourse.Refusal
}

// newHost returns the information about the worker that package admit needs. collectLabels adds the labels later.
func (w *Worker) newHost() *admit.Host {
	cfg := &w.cfg
	h := &admit.Host{
		Worker: w.self.Worker, Tag: w.self.Tag, Region: w.self.Region,
		Ledger: cfg.ledger(), Ports: cfg.Ports, Devices: cfg.Capacity.Devices, Drivers: w.drivers(),
		Load: w.load.read, SpaceError: w.store.SpaceError,
		NoNetwork: cfg.NoNetwork, ImageBudget: cfg.Capacity.ImageBudget(),
		Containers: func() error { return w.machines.Containers() },
		Scratch:    cfg.Volumes != nil, Peers: cfg.Peers != nil, Images: cfg.Images,
	}
	if cfg.Network != nil && cfg.NetworkMode != NetworkHost {
		h.Private = map[bourse.ImageKind]bool{bourse.RegistryImage: true, bourse.HostImage: cfg.NetworkMode == NetworkAll}
	}
	if cfg.Volumes != nil {
		h.VolumeLabels = cfg.Volumes.Labels()
	}
	if cfg.Pull != nil {
		h.Pollers = func(c *bourse.Config) *bourse.Refusal { return cfg.Pull.Room(machines.PollerLimits(c)) }
	}
	return h
}

// drivers returns the kinds of images that this worker runs.
func (w *Worker) drivers() []string {
	names := []string{}
	if w.cfg.Container != nil {
		names = append(names, string(bourse.RegistryImage))
	}
	if !w.cfg.NoHost {
		names = append(names, string(bourse.HostImage))
	}
	if w.cfg.Pull != nil {
		names = append(names, string(bourse.PollerImage))
	}
	return names
}

// collectLabels collects labels from the network and volumes, from the drivers, and from the operator. If several of
// these set the same label, the last one in this order wins. It must be called again once a driver has recovered,
// because some of the driver's labels are not available before that.
func (w *Worker) collectLabels() {
	shared := map[string]string{}
	if w.cfg.Network != nil {
		maps.Copy(shared, w.cfg.Network.Labels())
	}
	if w.cfg.Volumes != nil {
		maps.Copy(shared, w.cfg.Volumes.Labels())
	}
	with := func(sets ...map[string]string) map[string]string {
		out := maps.Clone(shared)
		for _, set := range append(sets, w.cfg.Capacity.Labels) {
			maps.Copy(out, set)
		}
		return out
	}
	host := w.cfg.Driver.Labels()
	if w.cfg.NoHost {
		host = nil
	}
	image, all := with(), with(host)
	if w.cfg.Container != nil {
		image = with(w.cfg.Container.Labels())
		if w.cfg.Volumes != nil {
			image[admit.LabelDiskLimit] = "loop"
		}
		all = with(image, host)
	}
	w.host.Labels.Store(&admit.Labels{All: all, ByKind: map[bourse.ImageKind]map[string]string{
		bourse.HostImage: with(host), bourse.RegistryImage: image, bourse.PollerImage: w.cfg.Capacity.Labels,
	}})
}
